"""PyTorch: its own functions and ``torch.func``, in double precision, eager or by ``torch.compile``."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from evaluations import PROGRAMS, WHILE, Arrays, Evaluation
from torch import func

from contenders.ways import described, fastest


class Contender:
    def __init__(self, asked: Evaluation, arrays: Arrays, variant: str, threads: int, tuned: bool) -> None:
        if asked.program in WHILE:
            raise NotImplementedError(f"{asked.program}: no derivative of a while loop in batches")
        if variant == "compiled" and asked.program in ("lstm", "ode"):
            raise NotImplementedError(f"{asked.program}: a loop in Python, compiled step by step")
        torch.set_flush_denormal(True)  # before any thread begins, which does as this one
        self.given, self.variant = {name: torch.tensor(value) for name, value in arrays.items()}, variant
        self.program = PROGRAMS[asked.program]
        questions = {"threads": (f"{threads} threads", "1 thread")} if threads > 1 else {}
        way = fastest(questions, self._made, tuned)
        self.call = self._made(way)
        how = ["torch.compile" if variant == "compiled" else "eager"]
        self.choice = ", ".join(filter(None, [*how, described(way, questions)]))

    def _made(self, way: dict[str, str]) -> Any:
        torch.set_num_threads(int(way.get("threads", "1").split()[0]))
        called = partial(self.program, Vocabulary)
        if self.variant == "compiled":
            called = torch.compile(called)  # type: ignore[assignment]
        return lambda: called(self.given)

    def run(self) -> None:
        self.results = self.call()

    def numbers(self) -> Arrays:
        return {name: value.detach().numpy() for name, value in self.results.items()}


class Vocabulary:
    """PyTorch's words; loops are Python's. No batch of directions goes through a loop whose end values decide."""

    np = torch
    grad, vmap = staticmethod(func.grad), staticmethod(func.vmap)
    sigmoid, constant = staticmethod(torch.sigmoid), staticmethod(torch.as_tensor)

    @staticmethod
    def value_and_grad(function: Any, argnums: Any = 0) -> Any:
        return lambda *arguments: func.grad_and_value(function, argnums)(*arguments)[::-1]

    @staticmethod
    def forward_grad(function: Any, chunk: int | None = None) -> Any:
        return lambda x: func.vmap(lambda t: func.jvp(function, (x,), (t,))[1], chunk_size=chunk)(
            torch.eye(len(x), dtype=x.dtype)
        )

    @staticmethod
    def jacobian(function: Any, argnums: Any = 0, by_rows: bool = False) -> Any:
        return (func.jacrev if by_rows else func.jacfwd)(function, argnums)

    @staticmethod
    def jvp(function: Any, x: Any, direction: Any) -> Any:
        return func.jvp(function, (x,), (direction,))

    @staticmethod
    def hvp(function: Any, x: Any, direction: Any) -> Any:
        return func.jvp(func.grad(function), (x,), (direction,))

    @staticmethod
    def scan(step: Any, state: Any, xs: Any, count: int) -> Any:
        kept = []
        for k in range(count):
            state, found = step(state, tuple(x[k] for x in xs))
            kept.append(found)
        return state, torch.stack(kept) if torch.is_tensor(kept[0]) else ()

    @staticmethod
    def sorted(x: Any) -> Any:
        return torch.sort(x).values

    @staticmethod
    def placed(x: Any, shape: Any, places: Any) -> Any:
        flat = torch.as_tensor(places[0] * shape[2] + places[1])
        return x.new_zeros(shape[0], shape[1] * shape[2]).index_copy(1, flat, x).reshape(shape)

    @staticmethod
    def constant_rows(t: Any, count: int) -> Any:
        return torch.cat([torch.ones_like(t[:, None]), t[:, None].expand(-1, count - 1)], 1)
