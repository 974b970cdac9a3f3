"""Errors of traced code show the user's frames, and keep the whole traceback."""

from __future__ import annotations

import pickle
import traceback

import numpy as np
import pytest

import pullback as pb
from pullback import metrics, nn, optim
from pullback.errors import PullbackError, ShapeError
from pullback.tracing import trees


def layer(x, w):
    return np.tanh(x @ w)


def loss(w, x):
    return layer(x, w).sum()


def calls_itself(w, x):
    return pb.grad(loss)(w, x).sum()


W, X = np.ones((3, 4)), np.ones((5, 2))
CALLS = {
    "jit": lambda: pb.jit(loss)(W, X),
    "grad": lambda: pb.grad(loss)(W, X),
    "nested": lambda: pb.jit(pb.value_and_grad(loss))(W, X),
    "vmap": lambda: pb.vmap(loss, (None, 0))(W, np.ones((6, 5, 2))),
    "vjp": lambda: pb.vjp(loss, W, X),
    "jvp": lambda: pb.jvp(loss, (W, X), (W, X)),
    "jacobian": lambda: pb.jacobian(loss)(W, X),
    "hessian": lambda: pb.hessian(loss)(W, X),
    "inspect": lambda: pb.jit(loss).inspect(W, X),
    "run_steps": lambda: pb.jit(loss).run_steps((W, X[None]), 1, 1),
}


def files(trace):
    return [frame.filename for frame in traceback.extract_tb(trace)]


@pytest.mark.parametrize("name", CALLS)
def test_the_users_frames_and_one_of_the_call(name):
    with pytest.raises(ShapeError, match="matmul") as caught:
        CALLS[name]()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-2:] == ["loss", "layer"]
    library = [file for file in files(caught.value.__traceback__) if "/pullback/" in file.replace("\\", "/")]
    assert len(library) == 1
    assert len(files(caught.value.full_traceback)) > len(names)
    assert any(file.endswith("products.py") for file in files(caught.value.full_traceback))


def test_frames_of_the_user_between_the_librarys_stay():
    with pytest.raises(ShapeError) as caught:
        pb.jit(calls_itself)(W, X)
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-3:] == ["calls_itself", "loss", "layer"]


def test_errors_of_the_users_own():
    def wrong(x):
        return {}["missing"] * x

    with pytest.raises(KeyError) as caught:
        pb.jit(pb.grad(wrong))(1.0)
    assert [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)][-1] == "wrong"


def test_a_fault_of_the_library_keeps_its_frames(monkeypatch):
    monkeypatch.setitem(trees._FLATTEN, list, trees._getter)  # it takes other arguments
    with pytest.raises(TypeError, match="_getter") as caught:
        pb.grad(lambda x: x[0])([1.0])
    assert any(file.endswith("trees.py") for file in files(caught.value.__traceback__))


def test_causes_stay():
    def wrong(x):
        try:
            return {}["missing"] * x
        except KeyError as error:
            raise ValueError("no such name") from error

    def implicit(x):
        try:
            return {}["missing"] * x
        except KeyError:
            raise ValueError("no such name")  # noqa: B904

    for function in (wrong, implicit):
        with pytest.raises(ValueError, match="no such name") as caught:
            pb.jit(function)(1.0)
        assert isinstance(caught.value.__context__, KeyError)
        assert caught.value.__suppress_context__ == (function is wrong)


def test_a_trainer_shows_the_model(capsys):
    class Wrong(nn.Module):
        weight: np.ndarray

        def __call__(self, x):
            return x @ self.weight

    trainer = pb.Trainer(Wrong(np.ones((3, 1))), nn.squared_error, optim.SGD(0.1))
    with pytest.raises(PullbackError) as caught:
        trainer.fit((np.ones((4, 2)), np.ones((4, 1))), 1)
    shown = traceback.extract_tb(caught.value.__traceback__)
    assert shown[-1].name == "__call__" and len(shown) <= 4


def of_layer(x):
    return nn.Dense(3, 2)(x).sum()


def of_loss(x):
    return nn.softmax_cross_entropy(x, np.zeros(4, int))


def of_setting(x):
    return nn.squared_error(x, x, reduction="average")


@pytest.mark.parametrize("call", [pb.jit, pb.grad, lambda f: pb.jit(pb.vmap(pb.grad(f)))])
@pytest.mark.parametrize("function", [of_layer, of_loss, of_setting])
def test_errors_of_layers_and_losses_have_the_users_line(function, call):
    with pytest.raises(ValueError) as caught:
        call(function)(np.ones((5, 5, 2)))
    source = f"(at {__file__}:{function.__code__.co_firstlineno + 1} in {function.__name__})"
    assert str(caught.value).count(source) == 1 and str(caught.value).endswith(source)


@pytest.mark.parametrize(
    "call",
    [
        lambda: nn.Dense(0, 2),
        lambda: nn.Chain(nn.Dense(3, 2))(X),
        lambda: nn.softmax_cross_entropy(X, np.zeros(3, int)),
        lambda: metrics.accuracy(X, np.zeros(3, int)),
        lambda: optim.SGD("0.1"),
        lambda: optim.SGD(0.1).update(X, (), X[0]),
        lambda: optim.SGD(lr=0.1),
    ],
)
def test_errors_of_what_is_called_without_a_trace_have_the_users_line(call):
    with pytest.raises(PullbackError) as caught:
        call()
    line = f"(at {__file__}:{call.__code__.co_firstlineno} in <lambda>)"
    assert str(caught.value).endswith(line) and str(caught.value).count(line) == 1
    again = pickle.loads(pickle.dumps(ShapeError(str(caught.value))))
    assert str(again) == str(caught.value)


def test_a_line_is_said_once():
    with pytest.raises(ShapeError) as caught:
        pb.jit(calls_itself)(W, X)
    assert str(caught.value).count(" in layer") == 1


def test_what_a_dataclass_makes_is_no_line_of_the_users():
    trainer = pb.Trainer(nn.Dense(3, 1), nn.squared_error, optim.SGD(0.1))
    with pytest.raises(PullbackError, match="labels") as caught:
        trainer.fit((np.ones((4, 3)), np.ones(3)), 1)
    assert "<string>" not in str(caught.value)
    assert "<string>" not in files(caught.value.__traceback__)


def test_errors_of_the_users_own_stay_as_they_are():
    def wrong(x):
        raise ValueError("[mine] is wrong")

    with pytest.raises(ValueError) as caught:
        pb.jit(wrong)(1.0)
    assert str(caught.value) == "[mine] is wrong"
