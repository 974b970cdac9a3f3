"""Which way a kernel is turned into code."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.compiler.codegen.indexed_contractions import IndexedContraction, find_indexed_contraction
from pullback.compiler.codegen.packed_contractions import Packing, choose_packing
from pullback.compiler.codegen.reduction_vectorised import ReductionVectorised, find_reduction_vectorised
from pullback.compiler.codegen.scatters import Scatter, find_scatter
from pullback.compiler.codegen.transposes import Transposed, find_transposed
from pullback.compiler.codegen.windows import WindowMaximum, find_window_maximum
from pullback.compiler.schedules.contraction import Contraction, find_contraction
from pullback.compiler.target import Processor
from pullback.loops import Kernel

__all__ = ["Form", "choose_form"]


@dataclass(frozen=True)
class Form:
    """A product (in blocks, if large), sums along memory or at computed places, a transposed copy, a scatter, a map."""

    product: Contraction | None = None
    packing: Packing | None = None
    dots: ReductionVectorised | None = None
    gathered: IndexedContraction | None = None
    pooled: WindowMaximum | None = None
    transposed: Transposed | None = None
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
        return "transposed copy" if self.transposed is not None else "map"


def choose_form(kernel: Kernel, lanes: int, processor: Processor) -> Form:
    """The form of ``kernel`` for vectors of ``lanes`` elements."""
    scatter = find_scatter(kernel)
    if scatter is not None:
        return Form(scatter=scatter)
    gathered = find_indexed_contraction(kernel, lanes)
    if gathered is not None:
        return Form(gathered=gathered)
    pooled = find_window_maximum(kernel)
    if pooled is not None:
        return Form(pooled=pooled)
    dots = find_reduction_vectorised(kernel, lanes)
    if dots is not None:
        return Form(dots=dots)
    product = find_contraction(kernel)
    if product is not None:
        return Form(product=product, packing=choose_packing(product, lanes, processor))
    return Form(transposed=find_transposed(kernel))
