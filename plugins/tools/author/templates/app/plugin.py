"""Draws charts: an MCP App. A model calls `chart`, a client shows its view, and the view calls `smooth`."""

from dataclasses import dataclass
from typing import Annotated

from bulkhead_plugin import Field, app, tool
from view import HTML

VIEW = "ui://{{name}}/view.html"

# What the view may reach is said here, such as csp={"connectDomains": ["https://api.example.com"]}.
app(VIEW, HTML, name="chart")

Title = Annotated[str, "What the values are."]
Values = Annotated[list[float], "From left to right.", Field(min_items=1, max_items=1000)]


@dataclass
class Chart:
    title: Title
    values: Annotated[list[float], "From left to right."]
    smallest: Annotated[float, "The lowest point of the chart."]
    largest: Annotated[float, "The highest point of the chart."]


@tool(read_only=True, open_world=False, meta={"ui": {"resourceUri": VIEW}})
def chart(title: Title, values: Values) -> Chart:
    """Draws a line chart of some values, where the client shows views, and returns them with the smallest and the largest."""
    return Chart(title, values, min(values), max(values))


@tool(read_only=True, open_world=False, meta={"ui": {"visibility": ["app"]}})
def smooth(title: Title, values: Values) -> Chart:
    """Returns the chart with each value replaced by the mean of itself and its neighbours."""
    around = (values[max(at - 1, 0) : at + 2] for at in range(len(values)))
    return chart(title, [sum(some) / len(some) for some in around])
