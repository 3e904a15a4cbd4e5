//! A picture of the costs of changes over the size of the world.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;

use crate::routes::{Form, Measured, measure};

/// The sizes that are measured if none are named.
pub(crate) const SIZES: [usize; 6] = [100, 300, 1_000, 3_000, 10_000, 30_000];

/// Measures at all sizes and writes the picture: one line a kind of change, the median until it is answered or seen; both axes are
/// logarithmic.
pub(crate) async fn write(path: &str, sizes: &[usize]) -> Result<()> {
    let mut all = Vec::new();
    for form in Form::ALL {
        let mut measured = Vec::new();
        for n in sizes {
            measured.push(measure(form, *n).await?);
        }
        all.push((form, measured));
    }
    fs::write(path, picture(sizes, &all))?;
    Ok(())
}

/// Colours that can be told from each other, and from white as well as from black.
const COLORS: [&str; 10] = [
    "#2f81c8", "#e0526a", "#3a9d62", "#a05fc0", "#c98a1b", "#6f7bd6", "#1ba39c", "#c2571a", "#7d9b2f",
    "#8a8f98",
];

/// The paper: width and height.
const PAPER: [f64; 2] = [960.0, 460.0];
/// The field of the plot: left, top, width, height.
const FIELD: [f64; 4] = [64.0, 16.0, 480.0, 380.0];
/// From where to where the field goes from below to above, in milliseconds.
const MS: [f64; 2] = [0.5, 500.0];

/// Without a background, and with text in the colour that fits the one that it is shown on.
const HEAD: &str = "<style>text{font:12px sans-serif;fill:#24292f}.g{stroke:#8888;stroke-width:.5}.l{fill:none;stroke-width:2}\
                    @media(prefers-color-scheme:dark){text{fill:#d0d7de}}</style>\n";

fn picture(sizes: &[usize], all: &[(Form, Vec<Measured>)]) -> String {
    let [paper_width, paper_height] = PAPER;
    let [left, top, width, height] = FIELD;
    let scale = Scale::of(sizes);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {paper_width} {paper_height}\" role=\"img\">\n\
         <title>What changes cost over the number of routes</title>\n{HEAD}"
    );
    for ms in [1.0, 10.0, 100.0] {
        for (part, is_labelled) in [(1.0, true), (2.0, false), (5.0, false)] {
            let y = y_of(ms * part);
            let _ = write!(svg, "<path class=\"g\" d=\"M{left} {y:.1}h{width}\"/>");
            if is_labelled {
                let (x, y) = (left - 6.0, y + 4.0);
                let _ = write!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{ms} ms</text>");
            }
            svg.push('\n');
        }
    }
    for n in sizes {
        let (x, y) = (scale.x(*n), top + height + 18.0);
        let _ = writeln!(
            svg,
            "<path class=\"g\" d=\"M{x:.1} {top}v{height}\"/><text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{n}</text>"
        );
    }
    let (x, y) = (left + width / 2.0, top + height + 40.0);
    let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">routes</text>");
    let mut line = top + 12.0;
    for (form, measured) in all {
        let names = measured.first().map(|one| one.changes.as_slice()).unwrap_or_default();
        for (i, (name, _)) in names.iter().enumerate() {
            let color = COLORS.get(i % COLORS.len()).copied().unwrap_or_default();
            let of = |one: &Measured| Some((one.n_routes, one.changes.get(i)?.1.median.as_secs_f64() * 1e3));
            let points: Vec<_> = measured.iter().filter_map(of).collect();
            let points = points.iter().map(|(n, ms)| format!("{:.1},{:.1}", scale.x(*n), y_of(*ms)));
            let points = points.collect::<Vec<_>>().join(" ");
            let style = format!("class=\"l\" stroke=\"{color}\"{}", dashes(*form));
            let (x, text) = (left + width + 20.0, format!("{}{}", form.label(), name.replace('`', "")));
            let _ = writeln!(
                svg,
                "<polyline {style} points=\"{points}\"/><path {style} d=\"M{x} {:.1}h24\"/><text x=\"{}\" y=\"{line:.1}\">{}</text>",
                line - 4.0,
                x + 30.0,
                shortened(&text)
            );
            line += 22.0;
        }
    }
    svg + "</svg>\n"
}

fn dashes(form: Form) -> &'static str {
    match form {
        Form::GatewayApi => "",
        Form::Native => " stroke-dasharray=\"5 4\"",
    }
}

/// As much of a name as stands beside the field.
fn shortened(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or(name).trim_end()),
        None => name.to_owned(),
    }
}

/// Sixty letters of the font have 350 units.
const MAX_NAME: usize = 60;

/// Where sizes are in the field.
struct Scale {
    /// The logarithms of the smallest and the largest size.
    sizes: [f64; 2],
}

impl Scale {
    fn of(sizes: &[usize]) -> Self {
        let log = |n: Option<&usize>| (n.copied().unwrap_or(1).max(1) as f64).log10();
        Self { sizes: [log(sizes.iter().min()), log(sizes.iter().max())] }
    }

    fn x(&self, n_routes: usize) -> f64 {
        let [left, _, width, _] = FIELD;
        let [least, most] = self.sizes;
        left + width * ((n_routes.max(1) as f64).log10() - least) / (most - least).max(f64::MIN_POSITIVE)
    }
}

/// Where a time is in the field.
fn y_of(ms: f64) -> f64 {
    let [_, top, _, height] = FIELD;
    let [least, most] = MS;
    top + height * (most.log10() - ms.clamp(least, most).log10()) / (most / least).log10()
}
