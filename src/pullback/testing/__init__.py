"""Checks for those who add rules: derivatives against differences, and random programs in ``testing.programs``."""

from pullback.testing.derivatives import OperatorCase, check_grads, operator_cases

__all__ = ["OperatorCase", "check_grads", "operator_cases"]
