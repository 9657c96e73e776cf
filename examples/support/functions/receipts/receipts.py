"""Exact arithmetic on the lines of an order, as tools.

A line is what the orders server lists: quantity, `x`, unit price, item, such as `2 x 39.90 kettle`.
"""

from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation

from subako_function import ToolError, serve, tool

CENT = Decimal("0.01")


def price_of(line: str) -> Decimal:
    """Returns quantity times unit price of one line.

    Raises:
        ToolError: the line does not have the form, naming it.
    """
    parts = line.split(maxsplit=3)
    if len(parts) < 3 or parts[1] != "x":
        raise ToolError(f"`{line}` is not a line such as `2 x 39.90 kettle`")
    try:
        quantity, unit_price = int(parts[0]), Decimal(parts[2])
    except (ValueError, InvalidOperation):
        raise ToolError(f"`{line}` holds a quantity or a price that is no number") from None
    if quantity < 1 or not unit_price.is_finite() or unit_price < 0:
        raise ToolError(f"`{line}` holds a quantity or a price that no order has")
    return quantity * unit_price


@tool(read_only=True)
def total(lines: list[str]) -> dict[str, str]:
    """Adds up the lines of an order.

    Args:
        lines: such as `2 x 39.90 kettle`.
    """
    return {"total": str(sum(map(price_of, lines), Decimal(0)).quantize(CENT, ROUND_HALF_EVEN))}


@tool(read_only=True)
def refund(lines: list[str], kept_percent: int = 0) -> dict[str, str]:
    """Computes what a customer gets back for returned lines of an order.

    Args:
        lines: what comes back, such as `1 x 39.90 kettle`.
        kept_percent: the share the shop keeps, from 0 to 100.
    """
    if not 0 <= kept_percent <= 100:
        raise ToolError("`kept_percent` is a share from 0 to 100")
    paid = sum(map(price_of, lines), Decimal(0)).quantize(CENT, ROUND_HALF_EVEN)
    kept = (paid * kept_percent / 100).quantize(CENT, ROUND_HALF_EVEN)
    return {"paid": str(paid), "kept": str(kept), "refund": str(paid - kept)}


if __name__ == "__main__":
    serve("receipts", "1")
