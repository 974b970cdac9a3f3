"""The cost model: estimates in cycles of one core, and the sizes from which on something pays or fits.

What is a fact of a processor, such as the width of its vectors or the latency of its caches, stands in its description
(``compiler/target``); what is here holds for all of them. All sizes that the compiler weighs against each other are
here, so that two stages do not mean two things by one name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from pullback.compiler.schedules.contraction import Contraction
from pullback.compiler.schedules.lanes import lanes_of
from pullback.compiler.target import Processor
from pullback.control.saving import CHEAP
from pullback.graph import OPERATORS
from pullback.loops import (
    Apply,
    Axis,
    Expression,
    Kernel,
    Load,
    Reduce,
    rare_case,
    turns_of,
    walk,
)
from pullback.loops.kernel import updates_case

ROW_OVERHEAD = 6
"""Cycles of a turn of the loops around a row."""

# -- Lowering: what is stored

RECOMPUTE_COST = CHEAP
"""A value of up to this cost is computed again by its users rather than stored, and in the steps of a loop.

Unless all but one of them together spend more than ``REPEATED_ARRAY_COST`` on it.
"""

REPEATED_COST = 2.0
"""A row of up to this cost is computed again for each row that repeats it; a division is not."""

SEEN_COST = 3.0
"""What windows see is stored if to make it for all but one of them costs more than this for each element."""

REPEATED_ARRAY_COST = 12.0
"""An element of a large array, or of a row, of up to this cost is computed again where others read it.

Lines of a large array come in order, and a row is near.
"""

LOOKUP_COST, COPY_COST = 2.0, 0.25
"""Of a row that is looked up, and of an element that is copied, so that rows are found beside each other."""

SHORT_AXIS = 8
"""Axes of up to this length may be joined with the one before them without storing the array first."""

DEEPEST_COST = 120.0
"""A value that costs more than this is stored even for a single user: expressions are walked recursively."""

DEEPEST_VALUE = 100
"""As many operations are computed inside each other, whatever they cost: views cost nothing."""

MOST_CONCATENATED, LEAST_LINE = 8, 32
"""Concatenations of no more parts, of lines at least so long, are written part by part."""

MOST_WINDOW_SUMS = 9
"""Places of a window whose sums are kept in registers together."""

ENOUGH_WINDOW_ROWS = 4
"""Rows whose windows share what they read of an image, from which on reading it costs little beside the sums."""

LEAST_FILLED = 0.75
"""How well the lanes must be filled, compared with a convolution by itself."""

FINDING_ARGMAX, UNALIGNED, SWEPT_PLACE = 3.0, 1.25, 2.0
"""Cycles to find a window's largest element, for each vector that lies anywhere, and for a place, mostly a zero."""

ASKED_VECTOR, ADDED_TO_PLACE = 8.0, 12.0
"""Cycles to ask a vector of places whether they won a window, and to add to the place that won it."""

READ_AND_WRITTEN = 2
"""How much longer visits take whose results are added to what is there: it is read and written."""


# -- Fusion

LARGEST_KERNEL = 120
"""Functions in one kernel: more would not fit into registers, and deep expressions are emitted recursively."""

LONGEST_ROW = 16384
"""Rows longer than this are not kept together: their values would leave the cache between one loop and the next."""

SHORTEST_SWEPT_ROW = 16
"""Rows shorter than this are swept in vectors that go on from row to row, which a loop inside each row undoes."""

LEAST_SWEEP = 16384
"""Bytes of an array below which reading it twice costs nothing: it stays in the nearest cache."""

HANDING_ON, HANDING_ON_ALL = 4.0, 200.0
"""Cycles to store and read a vector of a product whose functions are computed by themselves, and of a further loop."""

MOST_REPEATED_WORK = 48
"""How many expressions a value may have to be computed again in each loop of a row rather than read back."""


# -- Passes over the graph

MOST_ROUNDS = 4
"""A graph that still changes after this many rounds of all passes is good enough."""

MOST_ELIMINATED_ROWS = 6
"""Matrices of so many rows at most are eliminated by ordinary operations, which fuse with others and stay in loops.

That is two to five times as fast as LAPACK up to eight rows at least, but of seven it takes seconds to compile.
"""

LEAST_PICKED_FROM = 64
"""Elements of a row from which on one of them is read at its place; fewer are compared with it in some vectors."""

MOST_HALVINGS = 2
"""How often a factor is halved for its cotangent: more save a tenth of the work and double what is compiled."""

MOST_COFACTOR_ROWS = 4
"""Cofactors of so many rows at most are written out as the polynomials that they are."""

CHEAP_FOR_STEPS = 8.0
"""What costs no more than this for an element is not worth the memory that its value for all steps takes."""

LEAST_UNTOUCHED = 4
"""Elements of a table for each update from which on sparse ones pay: a dense step reads and writes all of them."""

MOST_SPARSE_NODES = 100
"""What a table's gradient is made of, scatters, factors and sums, at most."""

DEEPEST_FACTOR = 16
"""Elementwise operations followed from a factor of a pool's cotangent to what it is made of."""

MOST_JOINED_UPDATES = 4
"""Updates for each row of the array between, beyond which it is added to first: its rows are read in their order."""

TRANSFORM_COST, RESULT_COST = 4.0, 15.0
"""Multiply-adds in whose time an element is read, taken into a sum and written, before products that are shared; and in
which such a product is written, read again, and taken into an image that is asked whether it is finite."""

MOST_GATHERED, FEW_GATHERED = 2, 32
"""Terms of a gathered sum, zeros among them, for each update that there is; and terms that are few in any case."""

LARGEST_TABLE = 1 << 18
"""Updates whose numbers a program may keep in a table for that."""

MULTIPLY_ADD, STORE, LOAD_AND_ADD = 0.5, 2.0, 1.5
"""Cycles for each vector of a product of rows, and of what is read at places."""

WORTH_BY_ROWS = 0.85
"""Share of the time of a product place by place that one of different rows may take at most."""


# -- Routines

MARKED_TOGETHER = 4
"""Places whose rows of a table are marked, or numbered, in one turn of a loop."""

MERGED_FOR_A_DIGIT = 6
"""Elements for each byte of a number up to which a row is sorted by merging, longer ones by their digits."""

SORTED_RUN = 8
"""Elements that are sorted by insertion before runs are merged."""

MOST_INSERTED, FEWEST_FOR_ONE = 16, 8
"""Up to how many of the last in a row's order are found by insertion, if the row has so many elements for each of them.

Most rows take a third of the time in which they are sorted. One in which each element is larger than all behind it
takes as long for ten, and a quarter longer for sixteen.
"""


# -- The order of axes

COPY_CYCLES, SHORT_COPY_CYCLES, STEPPED = 0.5, 1.0, 1.5
"""Cycles to copy an element to another place, of short rows too, and to store one of a vector that lie apart."""

WORTH_REORDERING = 0.9
"""Another order of the axes must be this much faster than the order of the result."""


# -- Shares of caches and registers

STAYING, WAITING_SUMS = 0.5, 0.25
"""Of a cache: what stays there beside what comes and goes, and sums among it that wait for others."""

LONG_PIECES, HELD_ROW = 0.5, 0.25
"""Of the vector registers: sums over the rows of a large matrix, and a row that is held as a whole."""

LONG_ROW = 0.5
"""Of a page: shorter rows come by themselves where their columns are summed, one strip after another."""


# -- Sums in blocks, for the sake of rounding

LONGEST_CHAIN = 512
"""Terms that one accumulator takes."""

LONGEST_BLOCK = 16384
"""Terms of a block along memory, where each lane of several vectors is an accumulator."""


# -- Sums in parts

LEAST_SPLIT_CYCLES = 12_000.0
"""Sums that take less are done soonest by one thread."""

LEAST_PART_CYCLES = 1500.0
"""Parts of a vector times a matrix that take less are not worth a chunk each."""

LEAST_PART = 32
"""Elements that a part sums for each result: of shorter parts too many are written and read again."""

LEAST_SPLIT_DEPTH = 256
"""Multiply-adds of a part for each result beside which writing it, and reading it again, is little."""

MOST_SPLIT_RESULTS = 4096
MOST_PARTS = 128
ENOUGH_ROWS, FEWEST_SHARES = 8, 4
"""Kernels with this many rows have enough to share out as they are, if these make so many shares.

But vectors times matrices are cut by the matrix' rows, and sums at computed places stay with their samples.
"""

SHORTEST_SUMMED_ROW = 8
"""Rows of fewer elements are not summed by themselves: as much would be written and read again as is summed."""

STREAMED_ROWS, LEAST_STREAMED = 128, 16
"""Rows of a large matrix in a part of its product with a few rows, and at least so many for each of these.

A processor knows about as many pages at once; and writing and reading the part is little beside reading the matrix.
"""

FEWEST_PARTS = 8
"""Where fewer parts than this are equal and more are wanted, what is left over is a part of its own."""


# -- Short axes

MOST_UNROLLED_FUNCTIONS, MOST_JOINED_FUNCTIONS = 256, 400
"""Functions of a turn that is written out, of one kernel and of those that are joined."""

FEWEST_UNROLLED_VECTORS = 16
"""Vectors along the rows from which on longer axes are written out: fewer are too coarse to be shared out."""

WORTH_UNROLLING = 0.8
"""Share of the cycles that written out kernels may take at most."""

WAITING = 1.3
"""How much longer a long turn takes than its instructions: what comes next does not begin before much of it is done."""

REDUCED_VECTOR = 5.0
"""Cycles in which the lanes of a vector are reduced to one number, beside other rows."""

MOST_HELD = 16
"""Elements of an array that is kept in registers while one thread runs a loop: a matrix of four rows."""


# -- Results in place

FEW_UPDATES = 0.5
"""Of the elements of a table: up to so many updates are stored first where it stays in its place then."""


# -- Packed copies

LEAST_COPIED = 1024
"""Elements that a map reads across memory; of fewer a copy gains nothing."""

FEWEST_PANELS = 4
"""Panels that a right operand must make; of fewer the nearer cache holds what lies between them."""

MOST_PANELS_ACROSS = 16
"""Panels up to which a left operand that lies along the rows is read so: each step of a tile reads a line of it."""


PADDED_LINES = 8
"""Lines of a copy's row from which on it has an odd number of them."""


# -- Regions and grains

SHARED_BY = 2
"""Threads for which work is cut before it is known what runs beside it, and for whatever decides the order of sums."""

MOST_CHUNKS = 32
"""Of a group of rows."""

SHORT_CYCLES = 120_000.0
"""Row groups that take less go on with a kernel of fewer, longer rows: waiting costs more than uneven shares."""

UNEVEN_REGION = 1.15
"""How much longer a region may take than its work that is dealt out evenly, before it is cut more finely."""

FEWEST_READING = 4
"""Rows that share the reading of a large operand, at least: of fewer all threads wait for memory."""

READING = 0.1
"""Share of a chunk's time that reading what all chunks read, from beyond the nearer caches, may take."""

WORTH_CUTTING = 0.8
"""Share of a region's time that chunks of less than a tile of rows may take: they do more in all."""

COMPARING = 0.25
"""What each chunk of a scatter spends on comparing all places with its rows, as a part of adding the updates.

More of them, until it takes as long as adding, only where their rows would leave the cache.
"""

CHOICE_CYCLES = 64.0
"""Of a choice between branches: those that all together take less are all computed."""

HOST_CYCLES = 35_000.0
"""Of a call out of the program, whatever it does there."""


# -- Machine code

PART_CHARACTERS = 50_000
"""Text from which on a part is worth a module of its own: many times what LLVM needs for an empty one."""

CYCLES_BETWEEN_SIGNALS = 100_000
"""Cycles between two looks for signals, of which one takes about a hundred."""


# -- Maps

CHEAP_FUNCTIONS, SIDE_BY_SIDE, COSTLY_SIDE_BY_SIDE = 12, 4, 2
"""Bodies of up to so many functions run on four vectors at once, longer ones on two: registers are limited."""

MANY_SHARED, SHARING = 8, 2
"""Numbers that are the same for all rows from which on vectors of rows share their reads, and how many vectors do."""

FEWEST_LANES = 4
"""Elements of an axis from which on lanes lie along it, or change places with another's: most stay empty otherwise."""

LEAST_INSIDE = 0.5
"""Share of an axis from which on lanes that meet no end of a condition have a loop of their own."""

FEWEST_SHIFTED = 2
"""Operations that a value moved along the lanes must save: to move it is one or two."""

PICKED, WELL_FILLED = 1.5, 0.75
"""Cycles to read a vector and to pick lanes out of it; rows that fill this share of vectors are left apart."""


# -- Reductions

WRITTEN_OUT = 16
"""Reductions of up to this many elements, such as a pooling window, have no loop."""

SHORTEST_TRANSPOSED_ROW, LONG_LINES = 8, 3
"""Rows shorter than this leave too many lanes empty to be read one by one; of so many lines they come by themselves."""


# -- Register tiles

UNROLLED = 96
"""A nest of summed axes of this many multiply-adds, such as the window of a convolution, is written out."""

MOST_TILE_ROWS, MOST_TILE_VECTORS = 16, 6
"""Elements that are broadcast and vectors that are read for one step, at most."""

TILE_OVERHEAD = 8.0
"""Cycles that a tile costs beside its multiply-adds."""

USUAL_DEPTH = 64
"""Steps of a sum for which the rows of tiles that read packed panels are chosen."""

SPILLING = 0.125
"""Cycles of each multiply-add of a tile that is written out beyond half of ``UNROLLED``: registers run out."""

CROSSING = 0.75
"""Share of vectors that lie across two lines where they may lie anywhere: these are read twice."""

WINDOW_OPERANDS = 6
"""Registers beside the sums of windows of which the largest is wanted."""

UNEVEN = 1.05
"""How much worse a tile is that leaves rows over where chunks are shares of the rows: some chunk has fewer."""

LONG_DEPTH = 32
"""Sums shorter than this gain nothing from bands: the window of a single channel is soon read."""

LOOP_BODY = 16
"""Steps of the summed axis are repeated in the innermost loop until it has about this many multiply-adds."""

EPILOGUE_IN_REGISTERS = 6
"""Epilogues of more functions than this run in a loop over rows, from a copy of the tile: they need the registers."""


# -- What is asked for ahead

MOST_ASKED = 16
"""Lines of an array that are asked for in one turn of a sum: what it reads by itself waits behind them."""


# -- Packed panels

FEWEST_PACKED_ROWS, FEWEST_TRANSPOSED_ROWS = 24, 5
"""Rows from which on panels pay; and where the right operand lies along the sum, so that all of it would be copied."""
PACKED_BY = 40
"""Rows for which packing pays where the right operand fills all of L2; of a part of it more rows in proportion."""

FEWEST_PACKED_VECTORS = 2
"""Vectors of a row of the result from which on panels pay."""

USUAL_TILE_ROWS = 8
"""Rows of a tile, each of which reads panels that are more than stay in the cache from beyond it."""

PACKED_STEPS = 256
"""Steps of the summed axis that are packed at a time, at most: a tile's rows stay in the first-level cache, too."""

FETCHED_AHEAD = 4.0
"""Lines of each row that one thread loses to another where they write columns of the same rows."""

FEW_BLOCKS = 0.25
"""What a single block is worse than many, whose shares are finer; two are half as bad."""


# -- Contractions along the sum

OUTWEIGHING = 2
"""How many times as long as the columns a vector must be, and the sum, for lanes to lie along the sum."""

SHORTEST_SUM = 8
"""Summed axes shorter than this leave most lanes empty."""


# -- Indexed contractions

MOST_COLUMN_VECTORS = 64
"""Vectors for each row, beyond which their loop is not written out."""

MOST_INDEXED_ROWS = 8
"""Rows of a tile."""

LONGEST_LIST = 4096
"""Factors that are compacted together: a longer list would not stay in the nearest cache."""

INDEXED_VECTOR, LISTED_VECTOR, LIST_OVERHEAD, LIST_END = 0.75, 8.0, 20.0, 4.0
"""Cycles for a vector read at a computed place, for one of factors that are compacted, where a list ends, and there for
each vector of sums: of the chains of a short list most is beginning and end."""

CHAINS = 4
"""Sums over a list, and running totals, side by side, so that one need not wait for the last addition of another."""

MASKED_ZEROS = 0.5
"""Share of zeros that is expected of masked factors: a relu lets about half pass."""

BRANCH_CYCLES = 1.0
"""Cycles of a branch that goes as expected."""

LEAST_BANDED = 256
"""Results from which on rows of a sum over windows are written out together."""

MOST_BANDS, MOST_NARROW_BANDS = (4, 256), (8, 400)
"""How many rows together, and products in them; of single vectors more, whose additions wait for each other."""

MOST_TAPS = 32
"""Summed elements written out at once: with more of them, outer axes of the sum become loops."""

MOST_COMPARED = 64
"""Positions compared for one branch: their bits fit into a register."""


def compaction_gain(terms: Sequence[int], vectors: int, lanes: int) -> float:
    """Cycles of a row of ``vectors`` of sums that are saved where only factors other than zero are multiplied.

    ``terms`` are the extents of the sum's axes, the lanes of lists along the last one.
    """
    listed = math.prod(terms[:-1]) * -(-terms[-1] // lanes)
    saved = MASKED_ZEROS * math.prod(terms) * vectors * INDEXED_VECTOR
    return saved - listed * LISTED_VECTOR - LIST_OVERHEAD - vectors * LIST_END


def branch_gain(
    condition: Expression,
    term: Expression,
    over: Collection[Axis],
    lanes: Collection[Axis],
    share: float,
    target: Processor,
) -> float:
    """Cycles saved in a turn over axes where ``term`` is computed behind a branch that is taken in a ``share`` of them.

    Each time that it is taken it was expected not to be, and the time after that it was not.
    """
    known, cycles = set(walk(condition)), 0.0
    for part in walk(term):
        if part in known or not part.axes.intersection(over):
            continue
        width = max((axis.extent for axis in part.axes.intersection(lanes)), default=1)
        vectors = min(-(-width // target.lanes(part.dtype.itemsize)), SIDE_BY_SIDE)
        cycles += vectors * (0.5 if isinstance(part, Load) else vector_cycles(part, target))
    return (1 - share) * cycles - BRANCH_CYCLES - 2 * share * target.mispredicted_cycles


def kernel_cycles(kernel: Kernel, product: Contraction | None, target: Processor) -> float:
    """Cycles for the whole kernel."""
    case = updates_case(kernel)
    if case is not None and case.holds:
        return 0.0
    lanes = lanes_of(kernel, target)
    outer = turns_of(kernel.axes)
    if product is not None:
        vectors = turns_of(product.rows) * -(-product.columns.extent // lanes)
        read = sum(_bytes_read(pair.right) for pair in product.pairs) / target.bytes_per_cycle
        epilogue = sum(_own_cycles(e, lanes) for e in walk(*(s.value for s in product.stores)))
        # A few rows are done as soon as the right operand has arrived.
        return max(vectors * product.depth / target.multiply_adds, read) + epilogue * vectors * lanes
    cycles = ROW_OVERHEAD * outer / max(1, kernel.axes[-1].extent if kernel.axes else 1)
    for store in kernel.stores:
        inner = outer * turns_of(store.inner)
        cycles += inner * store.buffer.dtype.itemsize / target.bytes_per_cycle
        cycles += sum(outer * _turns(root, store.inner, lanes) for root in store.roots())
    return cycles


def _bytes_read(load: Load) -> int:
    """Bytes of the part of a buffer that a read goes over."""
    turns = turns_of(load.axes)
    return min(turns, load.buffer.size) * load.dtype.itemsize


def _turns(root: Expression, inner: tuple[Axis, ...], lanes: int) -> float:
    """Cycles of everything below ``root``, each expression as often as those loops turn that it depends on."""
    total = 0.0
    seen: set[int] = set()
    stack: list[tuple[Expression, frozenset[Axis]]] = [(root, frozenset(inner))]
    while stack:
        expression, around = stack.pop()
        if id(expression) in seen:
            continue
        seen.add(id(expression))
        turns = turns_of(around & expression.axes)
        total += turns * _own_cycles(expression, lanes)
        if isinstance(expression, Reduce):
            around = around.union(expression.over)
        case = rare_case(expression)
        operands = expression.operands if case is None else (case.condition, case.usual)
        stack.extend((operand, around) for operand in operands)
    return total


def costs_of(expressions: Iterable[Expression]) -> list[float]:
    """What the functions among expressions cost that are operators too."""
    operators = (OPERATORS.get(e.function) for e in expressions if isinstance(e, Apply))
    return [operator.cost for operator in operators if operator is not None]


def _own_cycles(expression: Expression, lanes: int) -> float:
    """Cycles of one value of an expression, without its operands."""
    if isinstance(expression, Apply):
        operator = OPERATORS.get(expression.function)
        return (operator.cost if operator is not None else 1.0) / lanes
    if isinstance(expression, Load):
        return 4.0 / lanes if expression.dynamic else 1.0 / lanes
    return 1.0 / lanes if isinstance(expression, Reduce) else 0.0


def cycles_of_epilogue(product: Contraction, lanes: int, target: Processor) -> float:
    """Cycles of what is computed of a product's sums, and of its stores."""
    vectors = turns_of(product.rows) * -(-product.columns.extent // lanes)
    one = sum(vector_cycles(e, target) for e in walk(*(store.value for store in product.stores)))
    return vectors * (one + 2.0 * len(product.stores))


def vector_cycles(expression: Expression, target: Processor) -> float:
    """Cycles of a vector of values of an expression, without its operands."""
    cost = _own_cycles(expression, 1)
    return cost if cost > 1 else cost / target.multiply_adds
