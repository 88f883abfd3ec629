// Callables for Python that run native code in one call: the steps of a region of oneDNN, and functions that were
// generated for a graph. They take addresses as integers, in an order that was fixed when they were made.
//
// Python's functions are those of its stable interface, declared here by name, so that neither headers nor another
// build for each version of Python are needed.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern "C" {

typedef struct _object PyObject;
typedef ptrdiff_t Py_ssize_t;
struct PyMethodDef {
    const char *name;
    PyObject *(*function)(PyObject *, PyObject *const *, Py_ssize_t);
    int flags;
    const char *doc;
};

extern PyObject *PyExc_TypeError;
PyObject *PyCapsule_New(void *, const char *, void (*)(PyObject *));
void *PyCapsule_GetPointer(PyObject *, const char *);
PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
PyObject *PyErr_NoMemory(void);
PyObject *PyErr_Occurred(void);
void PyErr_SetString(PyObject *, const char *);
void *PyEval_SaveThread(void);
void PyEval_RestoreThread(void *);
PyObject *PyLong_FromLong(long);
void *PyLong_AsVoidPtr(PyObject *);
void Py_DecRef(PyObject *);

}  // extern "C"

namespace {

// METH_FASTCALL
const int kFastCall = 0x80;
const Py_ssize_t kMostAddresses = 64;
const char *const kCapsule = "regluon.native";

typedef int (*Write)(void *memory, void *address);
typedef int (*Execute)(void *primitive, void *stream, int count, void *arguments);
typedef void (*Function)(void **addresses, int64_t first, int64_t end);
typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);

void destroy(PyObject *capsule) { free(PyCapsule_GetPointer(capsule, kCapsule)); }

// Integers as addresses; false with a Python error.
bool read_addresses(PyObject *const *given, Py_ssize_t count, Py_ssize_t wanted, void **addresses) {
    if (count != wanted) {
        PyErr_SetString(PyExc_TypeError, "another number of addresses than this function takes");
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        addresses[i] = PyLong_AsVoidPtr(given[i]);
        if (addresses[i] == NULL && PyErr_Occurred()) return false;
    }
    return true;
}

PyObject *callable(PyMethodDef *definition, void *state) {
    PyObject *capsule = PyCapsule_New(state, kCapsule, destroy);
    if (capsule == NULL) {
        free(state);
        return NULL;
    }
    PyObject *made = PyCFunction_NewEx(definition, capsule, NULL);
    Py_DecRef(capsule);
    return made;
}

}  // namespace

// Regions ----------------------------------------------------------------------

extern "C" {

struct Step {
    void *primitive;
    void *stream;
    void *arguments;
    int64_t count;
};

// A memory of oneDNN, and which of the addresses given it is to point to.
struct Pointed {
    void *memory;
    int64_t place;
};

}  // extern "C"

namespace {

struct Region {
    Write write;
    Execute execute;
    int64_t addresses, pointed, steps;
    // Followed by the Pointed and the Steps.
};

PyObject *run_region(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    Region *region = static_cast<Region *>(PyCapsule_GetPointer(self, kCapsule));
    if (region == NULL) return NULL;
    void *addresses[kMostAddresses];
    if (!read_addresses(given, count, region->addresses, addresses)) return NULL;
    const Pointed *pointed = reinterpret_cast<const Pointed *>(region + 1);
    const Step *steps = reinterpret_cast<const Step *>(pointed + region->pointed);
    int status = 0;
    void *thread = PyEval_SaveThread();
    for (int64_t i = 0; i < region->pointed && !status; i++)
        status = region->write(pointed[i].memory, addresses[pointed[i].place]);
    for (int64_t i = 0; i < region->steps && !status; i++)
        status = region->execute(steps[i].primitive, steps[i].stream, static_cast<int>(steps[i].count),
                                 steps[i].arguments);
    PyEval_RestoreThread(thread);
    return PyLong_FromLong(status);
}

PyMethodDef region_definition = {"run_region", run_region, kFastCall,
                                 "Run the steps of a region on these addresses; gives oneDNN's status."};

}  // namespace

// A callable that points memories to the addresses it is given, and executes the steps.
extern "C" PyObject *regluon_region(void *write, void *execute, int64_t addresses, int64_t pointed,
                                    const Pointed *memories, int64_t steps, const Step *first) {
    if (addresses > kMostAddresses) {
        PyErr_SetString(PyExc_TypeError, "a region with too many inputs and outputs");
        return NULL;
    }
    size_t size = sizeof(Region) + sizeof(Pointed) * pointed + sizeof(Step) * steps;
    Region *region = static_cast<Region *>(malloc(size));
    if (region == NULL) return PyErr_NoMemory();
    region->write = reinterpret_cast<Write>(write);
    region->execute = reinterpret_cast<Execute>(execute);
    region->addresses = addresses;
    region->pointed = pointed;
    region->steps = steps;
    Pointed *copied = reinterpret_cast<Pointed *>(region + 1);
    memcpy(copied, memories, sizeof(Pointed) * pointed);
    memcpy(copied + pointed, first, sizeof(Step) * steps);
    return callable(&region_definition, region);
}

// Generated functions ----------------------------------------------------------------------

namespace {

struct Generated {
    Function function;
    Parallel parallel;
    int64_t addresses, batch, block;
    bool release;
};

// Blocks of a batch, which threads take one after the other.
struct Work {
    const Generated *generated;
    void **addresses;
    int64_t next;
};

void work(void *given) {
    Work *shared = static_cast<Work *>(given);
    const Generated *generated = shared->generated;
    for (;;) {
        int64_t first = __atomic_fetch_add(&shared->next, generated->block, __ATOMIC_RELAXED);
        if (first >= generated->batch) return;
        int64_t end = first + generated->block;
        generated->function(shared->addresses, first, end < generated->batch ? end : generated->batch);
    }
}

PyObject *run_generated(PyObject *self, PyObject *const *given, Py_ssize_t count) {
    const Generated *generated = static_cast<const Generated *>(PyCapsule_GetPointer(self, kCapsule));
    if (generated == NULL) return NULL;
    // The first number is that of the threads to use.
    void *addresses[kMostAddresses + 1];
    if (!read_addresses(given, count, generated->addresses + 1, addresses)) return NULL;
    int64_t threads = reinterpret_cast<intptr_t>(addresses[0]);
    int64_t blocks = (generated->batch + generated->block - 1) / generated->block;
    Work shared = {generated, addresses + 1, 0};
    void *thread = generated->release ? PyEval_SaveThread() : NULL;
    if (threads > blocks) threads = blocks;
    if (threads > 1 && generated->parallel != NULL)
        generated->parallel(work, &shared, static_cast<unsigned>(threads), 0);
    else
        work(&shared);
    if (thread != NULL) PyEval_RestoreThread(thread);
    return PyLong_FromLong(0);
}

PyMethodDef generated_definition = {"run_generated", run_generated, kFastCall,
                                    "Run a generated function with so many threads, on these addresses."};

}  // namespace

// A callable that runs a generated function over the blocks of a batch; `parallel` is OpenMP's, or null.
extern "C" PyObject *regluon_generated(void *function, void *parallel, int64_t addresses, int64_t batch,
                                       int64_t block, int64_t release) {
    if (addresses > kMostAddresses) {
        PyErr_SetString(PyExc_TypeError, "a function of too many tensors");
        return NULL;
    }
    Generated *generated = static_cast<Generated *>(malloc(sizeof(Generated)));
    if (generated == NULL) return PyErr_NoMemory();
    generated->function = reinterpret_cast<Function>(function);
    generated->parallel = reinterpret_cast<Parallel>(parallel);
    generated->addresses = addresses;
    generated->batch = batch;
    generated->block = block;
    generated->release = release != 0;
    return callable(&generated_definition, generated);
}
