//! A chart beside the conversation: an MCP App. A model calls `chart`, a client shows its view, and the view calls
//! `smooth`.

use bulkhead_plugin::{App, Json, Plugin, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The view's URI. The view itself calls tools by the names that they have here, whatever prefix an operator puts in
/// front.
const VIEW: &str = "ui://chart/view.html";

#[derive(Deserialize, JsonSchema)]
struct Series {
    /// What the values are.
    title: String,
    /// From left to right.
    #[schemars(length(min = 1, max = 1000))]
    values: Vec<f64>,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct Chart {
    /// What the values are.
    title: String,
    /// From left to right.
    values: Vec<f64>,
    /// The lowest point of the chart.
    smallest: f64,
    /// The highest point of the chart.
    largest: f64,
}

impl From<Series> for Chart {
    fn from(Series { title, values }: Series) -> Self {
        let smallest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { title, values, smallest, largest }
    }
}

/// Draws a line chart of some values, where the client shows views, and returns them with the smallest and the largest.
#[tool(title = "Line chart", read_only, open_world = false)]
fn chart(series: Series) -> Json<Chart> {
    Json(series.into())
}

/// Returns the chart with each value replaced by the mean of itself and its neighbours.
#[tool(title = "Smooth", read_only, open_world = false)]
fn smooth(Series { title, values }: Series) -> Json<Chart> {
    let mean = |at: usize| {
        let around = &values[at.saturating_sub(1)..values.len().min(at + 2)];
        around.iter().sum::<f64>() / around.len() as f64
    };
    let values = (0..values.len()).map(mean).collect();
    Json(Series { title, values }.into())
}

fn plugin() -> Plugin {
    Plugin::new()
        .tool(chart::tool().view(VIEW))
        .tool(smooth::tool().for_views_only())
        .resource(App::new(VIEW, "chart", include_str!("view.html")).resource())
}

bulkhead_plugin::manifest!(
    r#"
name = "chart"
description = "Shows a line chart beside the conversation."
"#
);
bulkhead_plugin::export!(plugin, resources);

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[f64]) -> Series {
        Series { title: "t".to_owned(), values: values.to_vec() }
    }

    #[test]
    fn chart_lies_between_its_smallest_and_largest_value() {
        let Json(drawn) = chart(series(&[2.0, -1.0, 5.0]));
        assert_eq!((drawn.smallest, drawn.largest), (-1.0, 5.0));
    }

    #[test]
    fn smoothing_takes_the_mean_of_neighbours() {
        assert_eq!(smooth(series(&[0.0, 3.0, 6.0, 0.0])).0.values, [1.5, 3.0, 3.0, 3.0]);
        assert_eq!(smooth(series(&[7.0])).0.values, [7.0]);
    }

    #[test]
    fn view_is_the_resource_that_the_tool_names() {
        let contents = plugin().read(VIEW).unwrap();
        assert_eq!(contents[0].mime_type.as_deref(), Some("text/html;profile=mcp-app"));
        let [chart, smooth] = plugin().list().try_into().unwrap();
        assert_eq!(chart.meta, [("ui".to_owned(), r#"{"resourceUri":"ui://chart/view.html"}"#.to_owned())]);
        assert_eq!(smooth.meta, [("ui".to_owned(), r#"{"visibility":["app"]}"#.to_owned())]);
    }
}
