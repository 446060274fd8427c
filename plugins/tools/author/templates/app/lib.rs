//! Draws charts: an MCP App. A model calls `chart`, a client shows its view, and the view calls `smooth`.

use bulkhead_plugin::{App, Json, Plugin, tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const VIEW: &str = "ui://{{name}}/view.html";

#[derive(Deserialize, JsonSchema)]
struct Series {
    /// What the values are.
    title: String,
    /// From left to right.
    #[schemars(length(min = 1, max = 1000))]
    values: Vec<f64>,
}

#[derive(Serialize, JsonSchema)]
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
#[tool(read_only, open_world = false)]
fn chart(series: Series) -> Json<Chart> {
    Json(series.into())
}

/// Returns the chart with each value replaced by the mean of itself and its neighbours.
#[tool(read_only, open_world = false)]
fn smooth(Series { title, values }: Series) -> Json<Chart> {
    let mean = |at: usize| {
        let around = &values[at.saturating_sub(1)..values.len().min(at + 2)];
        around.iter().sum::<f64>() / around.len() as f64
    };
    let values = (0..values.len()).map(mean).collect();
    Json(Series { title, values }.into())
}

fn plugin() -> Plugin {
    // What the view may reach is said here, such as .csp("connectDomains", ["https://api.example.com"]).
    let view = App::new(VIEW, "chart", include_str!("view.html"));
    Plugin::new().tool(chart::tool().view(VIEW)).tool(smooth::tool().for_views_only()).resource(view.resource())
}

bulkhead_plugin::manifest!(include_str!("../manifest.toml"));
bulkhead_plugin::export!(plugin, resources);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_takes_the_mean_of_neighbours() {
        let series = Series { title: "t".to_owned(), values: vec![0.0, 3.0, 6.0, 0.0] };
        assert_eq!(smooth(series).0.values, [1.5, 3.0, 3.0, 3.0]);
    }
}
