"""Schedules: for each kind of kernel how it is recognised, and how the sizes of its code are chosen.

    map                                 map.py                     the axis of the lanes, rows in registers
    contraction                         contraction_schedules.py   register tiles (tiles.py), packed panels (packing.py)
    reduction-vectorised contraction    reduction_vectorised.py    a tile of sums along the summed axis
    indexed contraction                 indexed_contraction.py     columns
    window maximum                      window_maximum.py          rows whose windows stay in registers
    scatter                             scatter.py                 who owns which update
    transposed copy                     transpose.py               the two axes that change places

Most are moves on the nest of the kernel's loops (``loops/nest.py``). ``choose.py`` asks for each kind once. Inside a
kernel ``reduction.py`` says where the lanes of a sum lie. ``cost.py`` is the model by which they choose, and all floors
above, passes included, ask it too. Imports the target alone.

One kind more is a file here, with its class and how it is recognised, and a line in ``choose.py``; a file in
``codegen/`` with its emitter, and a line in ``codegen/kernels.py``. What other floors ask of every schedule has an
answer in ``schedule.py`` that a kind may leave as it is.
"""
