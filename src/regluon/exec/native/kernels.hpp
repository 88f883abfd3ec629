// Layers of small networks as templates over their sizes. All values are float32 and lie without gaps. A vector
// that would reach over the end of a row starts earlier instead, and computes some elements twice.

// Functions of the C library are called as builtins: the C++ headers for them take longer to read than all this.
#include <stdint.h>

namespace {

#if defined(__AVX512F__)
constexpr int kWidest = 16, kSums = 24;
#elif defined(__AVX__)
constexpr int kWidest = 8, kSums = 12;
#else
constexpr int kWidest = 4, kSums = 12;
#endif

// `kWidest` elements at most, loaded from anywhere.
template <int Lanes> struct Vector;
template <> struct Vector<16> { typedef float type __attribute__((vector_size(64), aligned(4), may_alias)); };
template <> struct Vector<8> { typedef float type __attribute__((vector_size(32), aligned(4), may_alias)); };
template <> struct Vector<4> { typedef float type __attribute__((vector_size(16), aligned(4), may_alias)); };
template <> struct Vector<1> { typedef float type; };
template <int Lanes> using Lane = typename Vector<Lanes>::type;

// How a row of `size` elements is cut.
constexpr int lanes(int size) {
    return size >= kWidest ? kWidest : size >= 8 && kWidest >= 8 ? 8 : size >= 4 ? 4 : 1;
}
constexpr int chunks(int size) { return (size + lanes(size) - 1) / lanes(size); }
constexpr int start(int size, int chunk) {
    return (chunk + 1) * lanes(size) > size ? size - lanes(size) : chunk * lanes(size);
}
constexpr int least(int a, int b) { return a < b ? a : b; }
// The size of equal blocks, of `most` elements at most, that cover `size`.
constexpr int block_of(int size, int most) {
    return most < 1 ? 1 : (size + (size + most - 1) / most - 1) / ((size + most - 1) / most);
}

template <int Lanes> inline Lane<Lanes> load(const float *from) {
    return *reinterpret_cast<const Lane<Lanes> *>(from);
}
template <int Lanes> inline void store(float *to, Lane<Lanes> value) { *reinterpret_cast<Lane<Lanes> *>(to) = value; }

// Activations ----------------------------------------------------------------------

struct Identity {
    float operator()(float x) const { return x; }
};
struct Relu {
    float operator()(float x) const { return x < 0 ? 0 : x; }
};
struct Sigmoid {
    float operator()(float x) const { return 1 / (1 + __builtin_expf(-x)); }
};
struct Tanh {
    float operator()(float x) const { return __builtin_tanhf(x); }
};
struct Silu {
    float operator()(float x) const { return x / (1 + __builtin_expf(-x)); }
};
struct Gelu {
    float operator()(float x) const { return 0.5f * x * (1 + __builtin_erff(x * 0.70710678f)); }
};
struct GeluTanh {
    float operator()(float x) const {
        return 0.5f * x * (1 + __builtin_tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
    }
};
struct Leaky {
    float slope;
    float operator()(float x) const { return x > 0 ? x : slope * x; }
};
struct Clip {
    float low, high;
    float operator()(float x) const { return x < low ? low : x > high ? high : x; }
};

// What follows the sums of a layer: a residual (or none), and an activation.
template <class Activation>
inline void finish(float *y, const float *residual, int64_t size, Activation activation) {
    if (residual != nullptr)
        for (int64_t i = 0; i < size; i++) y[i] = activation(y[i] + residual[i]);
    else
        for (int64_t i = 0; i < size; i++) y[i] = activation(y[i]);
}

template <class Activation> inline void unary(const float *x, float *y, int64_t size, Activation activation) {
    for (int64_t i = 0; i < size; i++) y[i] = activation(x[i]);
}

inline void copy(const float *x, float *y, int64_t size) { __builtin_memcpy(y, x, sizeof(float) * size); }

inline void add(const float *a, const float *b, float *y, int64_t size) {
    for (int64_t i = 0; i < size; i++) y[i] = a[i] + b[i];
}

inline void multiply(const float *a, const float *b, float *y, int64_t size) {
    for (int64_t i = 0; i < size; i++) y[i] = a[i] * b[i];
}

// A factor and an offset for each channel, of which there are some before one another, and elements in each.
template <int Outer, int Channels, int Inner, class Activation>
inline void affine(const float *x, const float *scale, const float *shift, float *y, Activation activation) {
    for (int o = 0; o < Outer; o++)
        for (int c = 0; c < Channels; c++)
            for (int i = 0; i < Inner; i++) {
                const int64_t place = (static_cast<int64_t>(o) * Channels + c) * Inner + i;
                y[place] = activation(x[place] * scale[c] + shift[c]);
            }
}

// Dense layers ----------------------------------------------------------------------

// `Rows` rows of the result, and of each the vectors from `First`. Weights are (Inputs, Outputs).
template <int Inputs, int Outputs, int Rows, int First, int Count>
inline void dense_block(const float *x, const float *weights, const float *bias, float *y) {
    constexpr int L = lanes(Outputs);
    Lane<L> sums[Rows][Count];
#pragma GCC unroll 32
    for (int c = 0; c < Count; c++) {
        Lane<L> offset = bias != nullptr ? load<L>(bias + start(Outputs, First + c)) : Lane<L>{};
#pragma GCC unroll 32
        for (int r = 0; r < Rows; r++) sums[r][c] = offset;
    }
    for (int i = 0; i < Inputs; i++) {
        Lane<L> row[Count];
#pragma GCC unroll 32
        for (int c = 0; c < Count; c++) row[c] = load<L>(weights + i * Outputs + start(Outputs, First + c));
#pragma GCC unroll 32
        for (int r = 0; r < Rows; r++) {
#pragma GCC unroll 32
            for (int c = 0; c < Count; c++) sums[r][c] += x[r * Inputs + i] * row[c];
        }
    }
#pragma GCC unroll 32
    for (int r = 0; r < Rows; r++) {
#pragma GCC unroll 32
        for (int c = 0; c < Count; c++) store<L>(y + r * Outputs + start(Outputs, First + c), sums[r][c]);
    }
}

template <int Inputs, int Outputs, int Rows, int First = 0>
inline void dense_rows(const float *x, const float *weights, const float *bias, float *y) {
    constexpr int kMost = kSums / Rows > 8 ? 8 : kSums / Rows > 5 ? 5 : kSums / Rows;
    constexpr int kCount = block_of(chunks(Outputs), kMost);
    constexpr int kNow = least(kCount, chunks(Outputs) - First);
    dense_block<Inputs, Outputs, Rows, First, kNow>(x, weights, bias, y);
    if constexpr (First + kNow < chunks(Outputs))
        dense_rows<Inputs, Outputs, Rows, First + kNow>(x, weights, bias, y);
}

template <int Inputs, int Outputs, class Activation>
inline void dense(const float *x, int64_t rows, const float *weights, const float *bias, const float *residual,
                  float *y, Activation activation) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
        dense_rows<Inputs, Outputs, 4>(x + r * Inputs, weights, bias, y + r * Outputs);
    for (; r < rows; r++) dense_rows<Inputs, Outputs, 1>(x + r * Inputs, weights, bias, y + r * Outputs);
    finish(y, residual, rows * Outputs, activation);
}

// Images ----------------------------------------------------------------------

// One image's size and order in memory: channels first, or last.
template <int Channels, int Height, int Width, bool Last> struct Image {
    static constexpr int channels = Channels, height = Height, width = Width;
    static constexpr int size = Channels * Height * Width;
    static constexpr int channel = Last ? 1 : Height * Width, row = Last ? Width * Channels : Width,
                         column = Last ? Channels : 1;
    static constexpr bool last = Last;
};

// With a border of zeros, in the same order.
template <class From, class To, int Top, int Left> inline void pad(const float *x, float *y) {
    __builtin_memset(y, 0, sizeof(float) * To::size);
    constexpr int kPlanes = From::last ? 1 : From::channels;
    constexpr int kRun = From::last ? From::width * From::channels : From::width;
    for (int c = 0; c < kPlanes; c++)
        for (int h = 0; h < From::height; h++)
            __builtin_memcpy(y + c * To::channel + (h + Top) * To::row + Left * To::column,
                   x + c * From::channel + h * From::row, sizeof(float) * kRun);
}

template <class From> inline void channels_first(const float *x, float *y) {
    constexpr int kPixels = From::height * From::width;
    for (int c = 0; c < From::channels; c++)
        for (int i = 0; i < kPixels; i++) y[c * kPixels + i] = x[i * From::channels + c];
}

// A convolution without padding; weights are (channels, kernel height, kernel width, filters).
template <int KernelH, int KernelW, int StrideH, int StrideW, int DilateH, int DilateW> struct Window {
    static constexpr int kh = KernelH, kw = KernelW, sh = StrideH, sw = StrideW, dh = DilateH, dw = DilateW;
};

// Vectors over filters, the result with its channels last.
template <class From, class To, class By, int Pixels, int First, int Count>
inline void filters_block(const float *x, const float *weights, const float *bias, float *y) {
    constexpr int L = lanes(To::channels);
    Lane<L> sums[Pixels][Count];
#pragma GCC unroll 32
    for (int c = 0; c < Count; c++) {
        Lane<L> offset = bias != nullptr ? load<L>(bias + start(To::channels, First + c)) : Lane<L>{};
#pragma GCC unroll 32
        for (int p = 0; p < Pixels; p++) sums[p][c] = offset;
    }
    for (int channel = 0; channel < From::channels; channel++)
        for (int h = 0; h < By::kh; h++)
            for (int w = 0; w < By::kw; w++) {
                const float *at = x + channel * From::channel + h * By::dh * From::row + w * By::dw * From::column;
                const float *row = weights + ((channel * By::kh + h) * By::kw + w) * To::channels;
                Lane<L> factors[Count];
#pragma GCC unroll 32
                for (int c = 0; c < Count; c++) factors[c] = load<L>(row + start(To::channels, First + c));
#pragma GCC unroll 32
                for (int p = 0; p < Pixels; p++) {
#pragma GCC unroll 32
                    for (int c = 0; c < Count; c++) sums[p][c] += at[p * By::sw * From::column] * factors[c];
                }
            }
#pragma GCC unroll 32
    for (int p = 0; p < Pixels; p++) {
#pragma GCC unroll 32
        for (int c = 0; c < Count; c++)
            store<L>(y + p * To::channels + start(To::channels, First + c), sums[p][c]);
    }
}

template <class From, class To, class By, int First = 0>
inline void filters_row(const float *x, const float *weights, const float *bias, float *y) {
    constexpr int kCount = block_of(chunks(To::channels), 2), kNow = least(kCount, chunks(To::channels) - First);
    constexpr int kPixels = block_of(To::width, kSums / kCount > 14 ? 14 : kSums / kCount);
    for (int block = 0; block < To::width; block += kPixels) {
        int p = least(block, To::width - kPixels);
        filters_block<From, To, By, kPixels, First, kNow>(x + p * By::sw * From::column, weights, bias,
                                                         y + p * To::channels);
    }
    if constexpr (First + kNow < chunks(To::channels)) filters_row<From, To, By, First + kNow>(x, weights, bias, y);
}

// Vectors over the pixels of a row, channels first.
template <class From, class To, class By, int Filters, int First, int Count>
inline void pixels_block(const float *x, const float *weights, const float *bias, float *y) {
    constexpr int L = lanes(To::width);
    Lane<L> sums[Filters][Count];
#pragma GCC unroll 32
    for (int f = 0; f < Filters; f++) {
        Lane<L> offset = Lane<L>{} + (bias != nullptr ? bias[f] : 0.0f);
#pragma GCC unroll 32
        for (int c = 0; c < Count; c++) sums[f][c] = offset;
    }
    for (int channel = 0; channel < From::channels; channel++)
        for (int h = 0; h < By::kh; h++)
            for (int w = 0; w < By::kw; w++) {
                const float *at = x + channel * From::channel + h * By::dh * From::row + w * By::dw;
                const float *row = weights + ((channel * By::kh + h) * By::kw + w) * To::channels;
                Lane<L> values[Count];
#pragma GCC unroll 32
                for (int c = 0; c < Count; c++) values[c] = load<L>(at + start(To::width, First + c));
#pragma GCC unroll 32
                for (int f = 0; f < Filters; f++) {
#pragma GCC unroll 32
                    for (int c = 0; c < Count; c++) sums[f][c] += row[f] * values[c];
                }
            }
#pragma GCC unroll 32
    for (int f = 0; f < Filters; f++) {
#pragma GCC unroll 32
        for (int c = 0; c < Count; c++) store<L>(y + f * To::channel + start(To::width, First + c), sums[f][c]);
    }
}

template <class From, class To, class By, int First = 0>
inline void pixels_row(const float *x, const float *weights, const float *bias, float *y) {
    constexpr int kCount = block_of(chunks(To::width), 3), kNow = least(kCount, chunks(To::width) - First);
    constexpr int kFilters = block_of(To::channels, kSums / kCount);
    for (int block = 0; block < To::channels; block += kFilters) {
        int f = least(block, To::channels - kFilters);
        pixels_block<From, To, By, kFilters, First, kNow>(x, weights + f, bias != nullptr ? bias + f : bias,
                                                         y + f * To::channel);
    }
    if constexpr (First + kNow < chunks(To::width)) pixels_row<From, To, By, First + kNow>(x, weights, bias, y);
}

template <class From, class To, class By, class Activation>
inline void convolution(const float *x, const float *weights, const float *bias, const float *residual, float *y,
                        Activation activation) {
    for (int h = 0; h < To::height; h++) {
        const float *at = x + h * By::sh * From::row;
        if constexpr (To::last)
            filters_row<From, To, By>(at, weights, bias, y + h * To::row);
        else
            pixels_row<From, To, By>(at, weights, bias, y + h * To::row);
    }
    finish(y, residual, To::size, activation);
}

// Pooling over windows that may reach over the border. It counts in averages, or holds the lowest number of all
// for the largest of a window.
template <class From, class To, class By, int Top, int Left, bool Max, bool Border>
inline void pooling(const float *x, float *y) {
    constexpr int kOuter = From::last ? 1 : From::channels, kInner = From::last ? From::channels : 1;
    for (int plane = 0; plane < kOuter; plane++)
        for (int h = 0; h < To::height; h++) {
            const int top = h * By::sh - Top, first_h = top < 0 ? 0 : top, end_h = least(top + By::kh, From::height);
            for (int w = 0; w < To::width; w++) {
                const int left = w * By::sw - Left, first_w = left < 0 ? 0 : left,
                          end_w = least(left + By::kw, From::width);
                float *to = y + plane * To::channel + h * To::row + w * To::column;
                const float *from = x + plane * From::channel;
                const bool inside = end_h - first_h == By::kh && end_w - first_w == By::kw;
                const float none = !Max ? 0.0f : Border && !inside ? -__FLT_MAX__ : -__builtin_inff();
                for (int c = 0; c < kInner; c++) to[c] = none;
                for (int i = first_h; i < end_h; i++)
                    for (int j = first_w; j < end_w; j++) {
                        const float *at = from + i * From::row + j * From::column;
                        for (int c = 0; c < kInner; c++)
                            to[c] = Max ? (at[c] > to[c] ? at[c] : to[c]) : to[c] + at[c];
                    }
                if (!Max) {
                    const float count = Border ? By::kh * By::kw : (end_h - first_h) * (end_w - first_w);
                    for (int c = 0; c < kInner; c++) to[c] /= count;
                }
            }
        }
}

// The same for windows that stay inside, which the compiler makes vectors of.
template <class From, class To, class By, bool Max> inline void inner_pooling(const float *x, float *y) {
    constexpr int kOuter = From::last ? 1 : From::channels, kInner = From::last ? From::channels : 1;
    for (int plane = 0; plane < kOuter; plane++)
        for (int h = 0; h < To::height; h++) {
            const float *from = x + plane * From::channel + h * By::sh * From::row;
            float *to = y + plane * To::channel + h * To::row;
            for (int w = 0; w < To::width; w++)
                for (int c = 0; c < kInner; c++) {
                    float found = Max ? -__builtin_inff() : 0.0f;
#pragma GCC unroll 8
                    for (int i = 0; i < By::kh; i++) {
#pragma GCC unroll 8
                        for (int j = 0; j < By::kw; j++) {
                            const float value = from[i * From::row + (w * By::sw + j) * From::column + c];
                            found = Max ? (value > found ? value : found) : found + value;
                        }
                    }
                    to[w * To::column + c] = Max ? found : found / (By::kh * By::kw);
                }
        }
}

// Rows ----------------------------------------------------------------------

template <int Size, bool Logarithm> inline void softmax(const float *x, float *y, int64_t rows) {
    for (int64_t r = 0; r < rows; r++, x += Size, y += Size) {
        float most = x[0], sum = 0;
        for (int i = 1; i < Size; i++) most = x[i] > most ? x[i] : most;
        for (int i = 0; i < Size; i++) sum += y[i] = __builtin_expf(x[i] - most);
        // The largest goes first, since a sum of both would lose the digits of the smaller one.
        const float by = Logarithm ? __builtin_logf(sum) : 1 / sum;
        for (int i = 0; i < Size; i++) y[i] = Logarithm ? x[i] - most - by : y[i] * by;
    }
}

template <int Size>
inline void layer_norm(const float *x, const float *gamma, const float *beta, float *y, int64_t rows, float epsilon) {
    for (int64_t r = 0; r < rows; r++, x += Size, y += Size) {
        float mean = 0, variance = 0;
        for (int i = 0; i < Size; i++) mean += x[i];
        mean /= Size;
        for (int i = 0; i < Size; i++) variance += (x[i] - mean) * (x[i] - mean);
        const float by = 1 / __builtin_sqrtf(variance / Size + epsilon);
        for (int i = 0; i < Size; i++) y[i] = (x[i] - mean) * by * gamma[i] + beta[i];
    }
}

}  // namespace
