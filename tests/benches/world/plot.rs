//! The cost of changes over the size of the world, as a picture.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;

use crate::routes::{Measured, measure};

const SIZES: [usize; 6] = [100, 300, 1_000, 3_000, 10_000, 30_000];

/// Measures at all sizes and writes the picture: processor time of each kind of change, both axes logarithmic.
pub(crate) async fn write(path: &str) -> Result<()> {
    let mut all = Vec::new();
    for n in SIZES {
        all.push(measure(n).await?);
    }
    fs::write(path, picture(&all))?;
    Ok(())
}

const COLORS: [&str; 10] = [
    "#1b6ca8", "#d1495b", "#3b8b5a", "#8d5a97", "#c98a1b", "#4a4e69", "#2a9d8f", "#9b2226", "#6a994e",
    "#7f7f7f",
];
/// The field of the plot: left, top, width, height.
const FIELD: [f64; 4] = [60.0, 20.0, 460.0, 380.0];

fn picture(all: &[Measured]) -> String {
    let mut svg =
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 460\" font-family=\"sans-serif\" \
                   font-size=\"12\">\n<rect width=\"960\" height=\"460\" fill=\"white\"/>\n"
            .to_owned();
    let [left, top, width, height] = FIELD;
    for ms in [0.1, 1.0, 10.0, 100.0, 1_000.0] {
        let y = y(ms);
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {y:.1}h{width}\" stroke=\"#ccc\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{ms} ms</text>",
            left - 6.0,
            y + 4.0
        );
    }
    for one in all {
        let x = x(one.n_routes);
        let _ = writeln!(
            svg,
            "<path d=\"M{x:.1} {top}v{height}\" stroke=\"#eee\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            top + height + 18.0,
            one.n_routes
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">routes</text>",
        left + width / 2.0,
        top + height + 40.0
    );
    let names = all.first().map(|one| one.changes.as_slice()).unwrap_or_default();
    for (i, ((name, _), color)) in names.iter().zip(COLORS).enumerate() {
        let points: String = all
            .iter()
            .filter_map(|one| Some((x(one.n_routes), one.changes.get(i)?.1.cpu.as_secs_f64() * 1e3)))
            .map(|(x, ms)| format!("{x:.1},{:.1} ", y(ms)))
            .collect();
        let (line, text) = (top + 20.0 + 24.0 * i as f64, name.replace('`', ""));
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
        );
        let _ = writeln!(
            svg,
            "<path d=\"M{} {:.1}h20\" stroke=\"{color}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{line:.1}\">{text}</text>",
            left + width + 20.0,
            line - 4.0,
            left + width + 46.0
        );
    }
    svg + "</svg>\n"
}

/// 100 to 30,000 routes.
fn x(n_routes: usize) -> f64 {
    let [left, _, width, _] = FIELD;
    left + width * ((n_routes.max(1) as f64).log10() - 2.0) / 30_000_f64.log10().mul_add(1.0, -2.0)
}

/// 0.1 to 1,000 ms.
fn y(ms: f64) -> f64 {
    let [_, top, _, height] = FIELD;
    top + height * (3.0 - ms.max(0.1).log10()) / 4.0
}
