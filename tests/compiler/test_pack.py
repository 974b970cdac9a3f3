"""Transposed copies of the operands of products: as few as there are different ones."""

from __future__ import annotations


def test_an_operand_along_its_rows_is_copied_before_its_first_use(stages):
    packed = stages(lambda x, w: (x @ w, x @ w.T), (9, 40), (40, 40))["pack"]
    assert (
        packed
        == """\
for i<9, j<40:
    result0[40*i + j] = sum[r0<40](argument0[40*i + r0] * argument1[j + 40*r0])
for r0<40, j<40:
    packed0[40*r0 + j] = argument1[r0 + 40*j]
for i<9, j<40:
    result1[40*i + j] = sum[r0<40](argument0[40*i + r0] * packed0[j + 40*r0])"""
    )


def test_products_share_a_copy(stages):
    packed = stages(lambda x, y, w: (x @ w.T, y @ w.T), (4, 40), (5, 40), (40, 40))["pack"]
    assert packed.count("packed0[40*r0 + j] =") == 1
    assert packed.count("packed0[j + 40*r0]") == 2
    assert "packed1" not in packed


def test_other_parts_of_an_operand_are_other_copies(stages):
    packed = stages(lambda x, w: (x @ w[:16].T, x @ w[16:].T), (4, 40), (32, 40))["pack"]
    assert "packed0" in packed
    assert "packed1" in packed
