"""Which way a kernel is turned into code."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.compiler.codegen.blocked import Blocking, choose_blocking
from pullback.compiler.codegen.dots import Dots, find_dots
from pullback.compiler.codegen.gathered import Gathered, find_gathered
from pullback.compiler.codegen.pooled import Pooled, find_pooled
from pullback.compiler.codegen.scatters import Scatter, find_scatter
from pullback.compiler.codegen.transposes import Transposition, find_transposition
from pullback.compiler.products import Product, find_product
from pullback.compiler.runtime.processor import Processor
from pullback.loops import Kernel

__all__ = ["Form", "choose_form"]


@dataclass(frozen=True)
class Form:
    """A product (in blocks, if large), sums along memory or at computed places, a transposed copy, a scatter, a map."""

    product: Product | None = None
    blocking: Blocking | None = None
    dots: Dots | None = None
    gathered: Gathered | None = None
    pooled: Pooled | None = None
    transposition: Transposition | None = None
    scatter: Scatter | None = None

    @property
    def name(self) -> str:
        """The form as a listing calls it."""
        if self.product is not None:
            return "product"
        if self.dots is not None:
            return "sums along memory"
        if self.pooled is not None:
            return "largest of sums"
        if self.gathered is not None:
            return "sums at computed places"
        if self.scatter is not None:
            return "scatter"
        return "transposed copy" if self.transposition is not None else "map"


def choose_form(kernel: Kernel, lanes: int, processor: Processor) -> Form:
    """The form of ``kernel`` for vectors of ``lanes`` elements."""
    scatter = find_scatter(kernel)
    if scatter is not None:
        return Form(scatter=scatter)
    gathered = find_gathered(kernel, lanes)
    if gathered is not None:
        return Form(gathered=gathered)
    pooled = find_pooled(kernel)
    if pooled is not None:
        return Form(pooled=pooled)
    dots = find_dots(kernel, lanes)
    if dots is not None:
        return Form(dots=dots)
    product = find_product(kernel)
    if product is not None:
        return Form(product=product, blocking=choose_blocking(product, lanes, processor))
    return Form(transposition=find_transposition(kernel))
