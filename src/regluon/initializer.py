"""Initializers: how the first values of parameters are made.

An initializer is called with a description (the parameter's name and attributes) and the array to fill. An
explicit
initializer in the attributes always decides; without one, the end of the name does: weights are filled as the
initializer says, biases and betas with zeros, gammas with ones.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from regluon.base import rng
from regluon.base.errors import MXNetError

__all__ = [
    "Bilinear",
    "Constant",
    "FusedRNN",
    "InitDesc",
    "Initializer",
    "LSTMBias",
    "Load",
    "MSRAPrelu",
    "Mixed",
    "Normal",
    "One",
    "Orthogonal",
    "RNNFused",
    "Uniform",
    "Xavier",
    "Zero",
    "alias",
    "create",
    "load",
    "register",
]

_REGISTRY: dict[str, type[Initializer]] = {}


class InitializerError(ValueError, AssertionError):
    """A description or argument that an initializer cannot use (an AssertionError too, as in MXNet)."""


class InitDesc(str):
    """Name of a parameter, with its attributes and the initializer to use where they name none."""

    attrs: dict[str, Any]
    global_init: Any

    def __new__(cls, name: str, attrs: Mapping[str, Any] | None = None, global_init: Any = None) -> InitDesc:
        result = super().__new__(cls, name)
        result.attrs = dict(attrs or {})
        result.global_init = global_init
        return result


def register(klass: type[Initializer]) -> type[Initializer]:
    """Class decorator that makes an initializer known by its lower-case class name."""
    _REGISTRY[klass.__name__.lower()] = klass
    return klass


def alias(*aliases: str) -> Callable[[type[Initializer]], type[Initializer]]:
    """Class decorator that gives an initializer further names."""

    def decorate(klass: type[Initializer]) -> type[Initializer]:
        register(klass)
        for name in aliases:
            _REGISTRY[name.lower()] = klass
        return klass

    return decorate


def create(initializer: Any, *args: Any, **kwargs: Any) -> Any:
    """Make an initializer from a name, from the text that :meth:`Initializer.dumps` writes, or from itself.

    Raises
    ------
    ValueError
        If no initializer of that name is registered.
    """
    if isinstance(initializer, Initializer | Load | Mixed):
        return initializer
    if not isinstance(initializer, str):
        if callable(initializer):
            return initializer
        raise InitializerError(
            "An initializer or its name was expected, such as mx.init.Xavier() or 'xavier'; received "
            f"{initializer!r}."
        )
    name = initializer
    if name.lstrip().startswith("["):
        try:
            name, kwargs = json.loads(name)
        except ValueError as error:
            raise InitializerError(
                f"The initializer text {initializer!r} is not valid JSON: {error}."
            ) from error
    klass = _REGISTRY.get(name.lower())
    if klass is None:
        raise InitializerError(
            f"No initializer is registered under '{name}'. Known are {', '.join(sorted(_REGISTRY))}; "
            f"add your own class with mx.init.register."
        )
    return klass(*args, **kwargs)


def _uniform(array: Any, scale: float) -> torch.Tensor:
    """Values uniform on [-scale, scale) of the array's shape; one draw of the library's random state."""
    values = torch.empty(tuple(array.shape), dtype=_drawn_type(array), device=array._t.device)
    return values.uniform_(-scale, scale, generator=rng.generator(rng.draw(), array._t.device))


def _normal(array: Any, sigma: float) -> torch.Tensor:
    """Normal values of mean 0 and standard deviation ``sigma``; one draw of the library's random state."""
    values = torch.empty(tuple(array.shape), dtype=_drawn_type(array), device=array._t.device)
    return values.normal_(0.0, sigma, generator=rng.generator(rng.draw(), array._t.device))


def _drawn_type(array: Any) -> torch.dtype:
    return torch.float64 if array._t.dtype == torch.float64 else torch.float32


def _write(array: Any, values: torch.Tensor) -> None:
    """Write a tensor of values into an array, in the array's own type."""
    values = values.to(array._t.dtype).reshape(tuple(array.shape))
    array[:] = type(array)._wrap(values.contiguous(), array._ctx)


class Initializer:
    """Base of all initializers. Override ``_init_weight(name, array)``.

    The keyword arguments are kept for :meth:`dumps`.
    """

    #: End of the name -> method that fills the array, tried in this order.
    _ENDINGS: ClassVar[tuple[tuple[tuple[str, ...], str], ...]] = (
        (("weight",), "_init_weight"),
        (("bias",), "_init_bias"),
        (("gamma",), "_init_gamma"),
        (("beta",), "_init_beta"),
        (("min", "moving_mean", "running_mean", "moving_inv_var", "moving_avg"), "_init_zero"),
        (("max", "moving_var", "running_var"), "_init_one"),
        (("weight_quantize",), "_init_quantized_weight"),
        (("bias_quantize",), "_init_quantized_bias"),
    )

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs
        self._verbose = False
        self._print_func: Callable[[Any], str] | None = None

    def set_verbosity(
        self, verbose: bool = False, print_func: Callable[[Any], str] | None = None
    ) -> Initializer:
        """Log every initialisation; ``print_func`` makes the text from the array (default: its norm over
        sqrt(size))."""
        self._verbose = verbose
        self._print_func = print_func
        return self

    def _report(self, desc: str, init: str, array: Any) -> None:
        if not self._verbose:
            return
        import logging

        show = self._print_func or (lambda a: str(float(a._t.double().norm() / math.sqrt(max(a.size, 1)))))
        logging.getLogger("regluon").info("Initialized %s as %s: %s", desc, init, show(array))

    def dumps(self) -> str:
        """JSON text from which :func:`create` makes an equal initializer."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._kwargs == getattr(other, "_kwargs", None)

    def __hash__(self) -> int:
        return hash((type(self), repr(sorted(self._kwargs.items(), key=lambda item: item[0]))))

    def __call__(self, desc: Any, array: Any) -> None:
        """Fill ``array``; ``desc`` is an :class:`InitDesc` (or a plain name).

        Raises
        ------
        ValueError
            If the name tells nothing and no explicit initializer is given.
        """
        if not isinstance(desc, str):
            raise InitializerError(
                f"The name of the parameter was expected as InitDesc or str; received {desc!r}."
            )
        if not isinstance(desc, InitDesc):
            desc = InitDesc(desc)
        if desc.global_init is None:
            desc.global_init = self
        explicit = desc.attrs.get("__init__")
        if explicit:
            chosen = create(explicit)
            if isinstance(chosen, Initializer):
                chosen._init_weight(desc, array)
            else:
                chosen(InitDesc(desc, global_init=desc.global_init), array)
            self._report(desc, str(explicit), array)
            return
        name = desc.lower()
        for endings, method in self._ENDINGS:
            if name.endswith(endings):
                getattr(self, method)(desc, array)
                self._report(desc, endings[0], array)
                return
        if name.startswith("upsampling"):
            self._init_bilinear(desc, array)
            return
        self._init_default(desc, array)

    def _init_bilinear(self, _: str, array: Any) -> None:
        _write(array, _bilinear(tuple(array.shape)))

    def _init_zero(self, _: str, array: Any) -> None:
        array[:] = 0

    def _init_one(self, _: str, array: Any) -> None:
        array[:] = 1

    def _init_bias(self, _: str, array: Any) -> None:
        array[:] = 0

    def _init_gamma(self, _: str, array: Any) -> None:
        array[:] = 1

    def _init_beta(self, _: str, array: Any) -> None:
        array[:] = 0

    def _init_quantized_bias(self, _: str, array: Any) -> None:
        array[:] = 0

    def _init_quantized_weight(self, _: str, array: Any) -> None:
        _write(array, _uniform(array, 127.0).trunc())

    def _init_weight(self, name: str, array: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} has no _init_weight(name, array): a class of initializers must define it."
        )

    def _init_default(self, name: str, array: Any) -> None:
        raise InitializerError(
            f"There is no default initialization for a parameter named '{name}'. Names must end in weight, "
            "bias, "
            f"gamma, beta, moving_mean or moving_var; otherwise give it its own initializer with init=."
        )


@alias("zeros")
class Zero(Initializer):
    """All zeros."""

    def _init_weight(self, _: str, array: Any) -> None:
        array[:] = 0


@alias("ones")
class One(Initializer):
    """All ones."""

    def _init_weight(self, _: str, array: Any) -> None:
        array[:] = 1


@register
class Constant(Initializer):
    """One value, or an array of values, everywhere."""

    def __init__(self, value: Any) -> None:
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, _: str, array: Any) -> None:
        array[:] = self.value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant):
            return False
        if hasattr(self.value, "shape") or hasattr(other.value, "shape"):
            return self.value is other.value
        return bool(self.value == other.value)

    __hash__ = Initializer.__hash__

    def dumps(self) -> str:
        value = self.value.tolist() if hasattr(self.value, "tolist") else self.value
        return json.dumps([type(self).__name__.lower(), {"value": value}])


@register
class Uniform(Initializer):
    """Uniform on [-scale, scale]."""

    def __init__(self, scale: float = 0.07) -> None:
        super().__init__(scale=scale)
        self.scale = scale

    def _init_weight(self, _: str, array: Any) -> None:
        _write(array, _uniform(array, self.scale))


@alias("gaussian")
class Normal(Initializer):
    """Normal with mean 0 and standard deviation sigma."""

    def __init__(self, sigma: float = 0.01) -> None:
        super().__init__(sigma=sigma)
        self.sigma = sigma

    def _init_weight(self, _: str, array: Any) -> None:
        _write(array, _normal(array, self.sigma))


@register
class Orthogonal(Initializer):
    """Rows (or columns, whichever are fewer) orthogonal, of length ``scale``.

    Source: Saxe, McClelland, Ganguli, "Exact solutions to the nonlinear dynamics of learning in deep linear
    neural networks", 2013.
    """

    def __init__(self, scale: float = 1.414, rand_type: str = "uniform") -> None:
        if rand_type not in ("uniform", "normal"):
            raise InitializerError(f"rand_type must be 'uniform' or 'normal'; received {rand_type!r}.")
        super().__init__(scale=scale, rand_type=rand_type)
        self.scale = scale
        self.rand_type = rand_type

    def _init_weight(self, _: str, array: Any) -> None:
        if self.rand_type == "uniform":
            drawn = _uniform(array, 1.0)
        else:
            drawn = _normal(array, 1.0)
        matrix = drawn.reshape(drawn.shape[0], -1).double()
        left, _values, right = torch.linalg.svd(matrix, full_matrices=False)
        basis = left if left.shape == matrix.shape else right
        _write(array, self.scale * basis)


@register
class Xavier(Initializer):
    """Random values scaled by the number of inputs and outputs: variance about ``magnitude / 3 / factor``.

    Parameters
    ----------
    rnd_type : {"uniform", "gaussian"}
        Distribution: uniform on [-s, s], or normal with standard deviation s, with s = sqrt(magnitude /
        factor).
    factor_type : {"avg", "in", "out"}
        Which fan is the factor.
    magnitude : float
        Scale of the variance.

    Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural
    networks", 2010.
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        super().__init__(rnd_type=rnd_type, factor_type=factor_type, magnitude=magnitude)
        self.rnd_type = rnd_type
        self.factor_type = factor_type
        self.magnitude = float(magnitude)

    def _init_weight(self, name: str, array: Any) -> None:
        shape = tuple(array.shape)
        if len(shape) < 2:
            raise InitializerError(
                f"{type(self).__name__} needs an array of at least 2 dimensions; '{name}' has shape {shape}. "
                f"Give this parameter another initializer with init=."
            )
        receptive = math.prod(shape[2:])
        fan_in, fan_out = shape[1] * receptive, shape[0] * receptive
        factors = {"avg": (fan_in + fan_out) / 2.0, "in": float(fan_in), "out": float(fan_out)}
        if self.factor_type not in factors:
            raise InitializerError(
                f"factor_type must be 'avg', 'in' or 'out'; received {self.factor_type!r}."
            )
        scale = math.sqrt(self.magnitude / factors[self.factor_type])
        if self.rnd_type == "uniform":
            drawn = _uniform(array, scale)
        elif self.rnd_type == "gaussian":
            drawn = _normal(array, scale)
        else:
            raise InitializerError(f"rnd_type must be 'uniform' or 'gaussian'; received {self.rnd_type!r}.")
        _write(array, drawn)


@register
class MSRAPrelu(Xavier):
    """Normal values for layers followed by a PReLU of the given slope.

    Source: He, Zhang, Ren, Sun, "Delving deep into rectifiers", 2015.
    """

    def __init__(self, factor_type: str = "avg", slope: float = 0.25) -> None:
        super().__init__("gaussian", factor_type, 2.0 / (1 + slope**2))
        self._kwargs = {"factor_type": factor_type, "slope": slope}


def _bilinear(shape: tuple[int, ...]) -> torch.Tensor:
    """Kernel of bilinear upsampling, the same for all channels: shape (..., height, width)."""
    factor = math.ceil(shape[-1] / 2.0)
    centre = (2 * factor - 1 - factor % 2) / (2.0 * factor)
    columns = 1 - (torch.arange(shape[-1], dtype=torch.float64) / factor - centre).abs()
    rows = 1 - (torch.arange(shape[-2], dtype=torch.float64) / factor - centre).abs()
    return (rows[:, None] * columns[None, :]).expand(shape)


@register
class Bilinear(Initializer):
    """Weights of a transposed convolution that upsamples bilinearly."""

    def _init_weight(self, name: str, array: Any) -> None:
        if len(array.shape) < 2:
            raise InitializerError(
                f"Bilinear needs an array of at least 2 dimensions; '{name}' has {array.shape}."
            )
        self._init_bilinear(name, array)


@register
class LSTMBias(Initializer):
    """Zeros, with the quarter that belongs to the forget gate set to ``forget_bias``."""

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, _: str, array: Any) -> None:
        hidden = array.shape[0] // 4
        values = torch.zeros(tuple(array.shape), dtype=torch.float64)
        values[hidden : 2 * hidden] = self.forget_bias
        _write(array, values.to(array._t.device))

    _init_bias = _init_weight


_GATES = {"rnn_relu": 1, "rnn_tanh": 1, "lstm": 4, "gru": 3}


def _gates(mode: str) -> int:
    if mode not in _GATES:
        raise InitializerError(f"mode must be one of {', '.join(_GATES)}; received {mode!r}.")
    return _GATES[mode]


def _fused_sections(
    size: int, gates: int, layers: int, hidden: int, directions: int, projection: int | None
) -> list[tuple[str, tuple[int, ...]]]:
    """Kinds and shapes of the pieces of a fused RNN parameter vector, in order.

    All weights come first (for every layer and direction i2h, h2h and, with a projection, h2r), then all
    biases.
    The size of the input follows from the whole size.
    """
    output = hidden if projection is None else projection
    rows = gates * hidden
    recurrent = rows * output + (0 if projection is None else projection * hidden)
    fixed = directions * (layers * (recurrent + 2 * rows) + (layers - 1) * rows * output * directions)
    inputs, rest = divmod(size - fixed, rows * directions)
    if rest or inputs <= 0:
        raise InitializerError(
            f"A fused RNN parameter of {layers} layers with {hidden} hidden units cannot have {size} "
            "elements."
        )
    sections: list[tuple[str, tuple[int, ...]]] = []
    for layer in range(layers):
        width = inputs if layer == 0 else output * directions
        for _ in range(directions):
            sections += [("i2h_weight", (rows, width)), ("h2h_weight", (rows, output))]
            if projection is not None:
                sections.append(("h2r_weight", (projection, hidden)))
    return sections + [("i2h_bias", (rows,)), ("h2h_bias", (rows,))] * (layers * directions)


def _fill_sections(
    array: Any, sections: Sequence[tuple[str, tuple[int, ...]]], fill: Callable[[str, Any], None]
) -> None:
    """Fill the pieces of a flat parameter one by one."""
    begin = 0
    for kind, shape in sections:
        count = math.prod(shape)
        piece = type(array)._wrap(
            torch.zeros(shape, dtype=array._t.dtype, device=array._t.device), array._ctx
        )
        fill(kind, piece)
        array[begin : begin + count] = piece.reshape((count,))
        begin += count


@register
class RNNFused(Initializer):
    """Fills the one vector that holds all parameters of a fused RNN layer, with an initializer for each kind.

    A kind without an initializer takes the network's (weights) or zeros (biases).
    """

    def __init__(
        self,
        mode: str,
        num_layers: int,
        state_size: int,
        bidirectional: bool = False,
        projection_size: int | None = None,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = None,
        h2h_bias_initializer: Any = None,
        h2r_weight_initializer: Any = None,
    ) -> None:
        given = {
            "i2h_weight_initializer": i2h_weight_initializer,
            "h2h_weight_initializer": h2h_weight_initializer,
            "i2h_bias_initializer": i2h_bias_initializer,
            "h2h_bias_initializer": h2h_bias_initializer,
            "h2r_weight_initializer": h2r_weight_initializer,
        }
        described = {key: init.dumps() if hasattr(init, "dumps") else init for key, init in given.items()}
        super().__init__(
            mode=mode,
            num_layers=num_layers,
            state_size=state_size,
            bidirectional=bidirectional,
            projection_size=projection_size,
            **described,
        )
        self.gates = _gates(mode)
        self.num_layers = num_layers
        self.state_size = state_size
        self.directions = 2 if bidirectional else 1
        self.projection_size = projection_size
        self._initializers = {key.removesuffix("_initializer"): init for key, init in given.items()}

    def _init_weight(self, name: str, array: Any) -> None:
        fallback = getattr(name, "global_init", None)
        if not isinstance(fallback, Initializer) or isinstance(fallback, RNNFused):
            fallback = Uniform()

        def fill(kind: str, piece: Any) -> None:
            init = self._initializers[kind]
            if init is None:
                init = "zeros" if kind.endswith("bias") else fallback
            create(init)(InitDesc(kind, {"__init__": init}), piece)

        sections = _fused_sections(
            array.size, self.gates, self.num_layers, self.state_size, self.directions, self.projection_size
        )
        _fill_sections(array, sections, fill)


@register
class FusedRNN(Initializer):
    """MXNet 1.x form of :class:`RNNFused`: one initializer for all weights, zero biases, an LSTM forget
    bias."""

    def __init__(
        self,
        init: Any,
        num_hidden: int,
        num_layers: int,
        mode: str,
        bidirectional: bool = False,
        forget_bias: float = 1.0,
    ) -> None:
        chosen = None if init is None else create(init)
        super().__init__(
            init=None if chosen is None else chosen.dumps(),
            num_hidden=num_hidden,
            num_layers=num_layers,
            mode=mode,
            bidirectional=bidirectional,
            forget_bias=forget_bias,
        )
        self.gates = _gates(mode)
        self._init = chosen
        self._num_hidden = num_hidden
        self._num_layers = num_layers
        self._directions = 2 if bidirectional else 1
        self._forget_bias = forget_bias

    def _init_weight(self, name: str, array: Any) -> None:
        weights = self._init or getattr(name, "global_init", None)
        if weights is None or isinstance(weights, FusedRNN):
            weights = Uniform()
        biases: Initializer = LSTMBias(self._forget_bias) if self.gates == 4 else Zero()

        def fill(kind: str, piece: Any) -> None:
            chosen = biases if kind.endswith("bias") else weights
            chosen._init_weight(InitDesc(kind), piece)

        sections = _fused_sections(
            array.size, self.gates, self._num_layers, self._num_hidden, self._directions, None
        )
        _fill_sections(array, sections, fill)

    def _init_default(self, name: str, array: Any) -> None:
        self._init_weight(name, array)


class Fixed(Initializer):
    """The value of a :class:`~regluon.gluon.Constant`; not written into symbols."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def _init_weight(self, _: str, array: Any) -> None:
        array[:] = self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and self.value is other.value

    __hash__ = Initializer.__hash__


class Load:
    """Values from a file or mapping, by name; ``default_init`` fills what is not there.

    ``param`` is a mapping of names (with or without ``arg:`` and ``aux:``) to arrays, or the path of a
    file of them.
    """

    def __init__(self, param: Any, default_init: Any = None, verbose: bool = False) -> None:
        if isinstance(param, str):
            param = load(param)
        if not isinstance(param, Mapping):
            raise InitializerError(
                f"Load needs a mapping of names to arrays, or a file of one; received {type(param)}."
            )
        self.param = {
            name[4:] if name.startswith(("arg:", "aux:")) else name: value for name, value in param.items()
        }
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, array: Any) -> None:
        """Fill ``array`` with the value stored under ``name``.

        Raises
        ------
        ValueError
            If the stored shape differs, or nothing is stored and there is no default.
        """
        if name in self.param:
            stored = self.param[name]
            if tuple(stored.shape) != tuple(array.shape):
                raise InitializerError(
                    f"Parameter '{name}' has shape {tuple(array.shape)}, but {tuple(stored.shape)} was "
                    "loaded for it."
                )
            array[:] = stored
            return
        if self.default_init is None:
            raise InitializerError(
                f"Nothing was loaded for parameter '{name}' and Load has no default_init. Give one, or "
                "load a file that "
                f"holds it; there are {', '.join(sorted(self.param)[:12])}."
            )
        default = create(self.default_init)
        default(name, array)


class Mixed:
    """Several initializers; the first whose pattern matches the name is used."""

    def __init__(self, patterns: Sequence[str], initializers: Sequence[Any]) -> None:
        if len(patterns) != len(initializers):
            raise InitializerError(
                f"Mixed needs one initializer for each pattern; received {len(patterns)} patterns "
                f"and {len(initializers)} initializers."
            )
        self.map = [
            (re.compile(pattern), create(init)) for pattern, init in zip(patterns, initializers, strict=True)
        ]

    def __call__(self, name: str, array: Any) -> None:
        """Fill ``array`` as the first matching pattern says.

        Raises
        ------
        ValueError
            If no pattern matches.
        """
        attributes = dict(getattr(name, "attrs", {}))
        if attributes.get("__init__") is self:
            del attributes["__init__"]
        for pattern, init in self.map:
            if pattern.match(name):
                init(InitDesc(name, attributes), array)
                return
        raise InitializerError(
            f"Parameter '{name}' matches none of the patterns "
            f"{[pattern.pattern for pattern, _ in self.map]}. "
            f"Add '.*' as the last pattern, with a default initializer."
        )


def load(fname: str) -> dict[str, Any] | list[Any]:
    """Read the arrays of a file, for :class:`Load`."""
    from regluon import serial

    try:
        return serial.load(fname)
    except OSError as error:
        raise MXNetError(f"The file '{fname}' of initial values cannot be read: {error}") from error
