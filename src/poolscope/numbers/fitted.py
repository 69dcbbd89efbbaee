"""What poolings and vector repairs share: parameters as scikit-learn knows them, and fitted arrays."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from poolscope.errors import InputError

Arrays = dict[str, NDArray[Any]]


class Fitted:
    """Parameters are the arguments of `__init__`, kept under their names; fitted arrays end in an underscore."""

    name: ClassVar[str]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as scikit-learn asks for them."""
        return {key: getattr(self, key) for key in _parameters(type(self))}

    def set_params(self, **values: Any) -> Self:
        """Change parameters; unknown names are refused."""
        if unknown := sorted(set(values) - set(_parameters(type(self)))):
            allowed = ", ".join(_parameters(type(self))) or "none"
            raise InputError(f"{type(self).__name__}: received the parameters {unknown}; allowed: {allowed}.")
        for key, value in values.items():
            setattr(self, key, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self.get_params().items())
        return f"{type(self).__name__}({given})"

    @property
    def label(self) -> str:
        """A short name with the parameters that matter, for tables."""
        return self.name

    @property
    def arrays(self) -> Arrays:
        """The fitted arrays by name; empty before `fit`, or where there is nothing to fit."""
        fitted = {key: value for key, value in vars(self).items() if key.endswith("_") and not key.startswith("_")}
        return {key: value for key, value in fitted.items() if isinstance(value, np.ndarray)}

    def require_fit(self, attribute: str) -> None:
        """Refuse to work before `fit`."""
        if not hasattr(self, attribute):
            raise InputError(f"{self!r} is not fitted yet; call fit on a sample first, or load a saved one.")

    def to_dict(self) -> dict[str, Any]:
        """Name and parameters, for JSON; the arrays are kept beside it."""
        values = self.get_params().items()
        parameters = {key: value.item() if isinstance(value, np.generic) else value for key, value in values}
        return {"name": self.name, "parameters": parameters}


def _parameters(kind: type) -> list[str]:
    return [key for key in inspect.signature(kind).parameters if key != "self"]
