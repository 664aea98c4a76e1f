"""Docstrings in the conventions that people use."""

import unittest

import support  # noqa: F401  (puts the package on the path)
from owlclaw_worker.docstring import parse

GOOGLE = """Place an order.

    Orders are final.

    Args:
        sku (str): Stock keeping unit,
            upper case.
        count: How many: at least one.
        *rest: More of them.
        session: The context.

    Returns:
        dict: The order.

    Raises:
        ValueError: if there is none.
    """

NUMPY = """Place an order.

    Parameters
    ----------
    sku : str
        Stock keeping unit,
        upper case.
    count, limit : int, optional
        How many.

    Returns
    -------
    dict
        The order.
    """

REST = """Place an order.

    :param sku: Stock keeping unit,
        upper case.
    :param int count: How many: at least one.
    :type sku: str
    :returns: The order.
    :rtype: dict
    :raises ValueError: if there is none.
    """

CHINESE = """下单。

    订单不可撤销。

    参数：
        sku: 商品编号，
            大写。
        count（整数）：数量
        - note：备注

    返回：
        订单
    """

CHINESE_FLAT = """下单。

参数:
sku: 商品编号
count - 数量

说明文字。
"""

EPYDOC = """Place an order.

    @param sku: Stock keeping unit.
    @return: The order.
    """

BOTH = """Place an order with these arguments:

    they matter.

    Keyword Args:
        sku: Stock keeping unit.

    Example:
        place(sku="a")
    """


class Docstrings(unittest.TestCase):
    maxDiff = None

    def test_parameters_are_found_and_prose_is_kept(self):
        rows = [
            (
                GOOGLE,
                "Place an order.\n\nOrders are final.\n\nReturns:\n    dict: The order.\n\n"
                "Raises:\n    ValueError: if there is none.",
                {
                    "sku": "Stock keeping unit, upper case.",
                    "count": "How many: at least one.",
                    "rest": "More of them.",
                },
            ),
            (
                NUMPY,
                "Place an order.\n\nReturns\n-------\ndict\n    The order.",
                {"sku": "Stock keeping unit, upper case.", "count": "How many.", "limit": "How many."},
            ),
            (
                REST,
                "Place an order.\n\nReturns: The order.\nRaises ValueError: if there is none.",
                {"sku": "Stock keeping unit, upper case.", "count": "How many: at least one."},
            ),
            (
                CHINESE,
                "下单。\n\n订单不可撤销。\n\n返回：\n    订单",
                {"sku": "商品编号， 大写。", "count": "数量", "note": "备注"},
            ),
            (CHINESE_FLAT, "下单。\n\n说明文字。", {"sku": "商品编号", "count": "数量"}),
            (EPYDOC, "Place an order.\n\nReturns: The order.", {"sku": "Stock keeping unit."}),
            (
                BOTH,
                "Place an order with these arguments:\n\nthey matter.\n\nExample:\n    place(sku=\"a\")",
                {"sku": "Stock keeping unit."},
            ),
            (
                "下单。\n\n:param sku：商品编号\n:param int count: 数量：至少一个\n:return：订单",
                "下单。\n\nReturns: 订单",
                {"sku": "商品编号", "count": "数量：至少一个"},
            ),
            ("One line.", "One line.", {}),
            ("", "", {}),
            (None, "", {}),
            ("Args:", "", {}),
            ("Args:\n    nothing like an entry", "Args:\nnothing like an entry", {}),
            ("Places.\n\nArgs:\n    nothing like an entry", "Places.", {}),
            ("Parameters\n----------", "", {}),
            (":param:", "", {}),
        ]
        for text, prose, parameters in rows:
            with self.subTest(text=text):
                found = parse(text, ["sku", "count", "limit", "note", "rest"])
                self.assertEqual(found.prose, prose)
                self.assertEqual(found.parameters, parameters)

    def test_only_names_that_exist_are_parameters(self):
        self.assertEqual(parse(GOOGLE, ["count"]).parameters, {"count": "How many: at least one."})

    def test_prose_that_looks_a_little_like_a_section_stays(self):
        text = "Compares.\n\nNote: this is slow.\n\nresults: sorted by date"
        self.assertEqual(parse(text, ["results"]), (text, {}))

    def test_long_docstrings_are_read_in_reasonable_time(self):
        text = "Args:\n" + "    a(((((((((((((((((( : x\n" * 2000 + "((" * 20000
        self.assertEqual(parse(text, ["b"]).parameters, {})


if __name__ == "__main__":
    unittest.main()
