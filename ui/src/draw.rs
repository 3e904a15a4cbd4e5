//! What several screens draw.

use maud::{Markup, html};
use serde_json::Value;

use crate::path::{Params, path, text};

/// A time, which the browser keeps as an age.
pub(crate) fn time(at: &str) -> Markup {
    html! { @if !at.is_empty() { time datetime=(at) { (at) } } }
}

/// The last part of a type URL.
pub(crate) fn short_type(type_url: &str) -> &str {
    type_url.rsplit(['.', '/']).next().unwrap_or(type_url)
}

/// A word for how something is, with a colour.
pub(crate) fn badge(tone: Tone, word: &str) -> Markup {
    html! { span.badge.(tone.class()) { (word) } }
}

/// What a colour says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Busy,
    Warn,
    Bad,
    Plain,
}

impl Tone {
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Warn => "warn",
            Self::Bad => "bad",
            Self::Plain => "plain",
        }
    }
}

/// A bar of parts, each with its number and name.
pub(crate) fn bar(parts: &[(Tone, u64, &str)]) -> Markup {
    let said: Vec<String> =
        parts.iter().filter(|(_, n, _)| *n > 0).map(|(_, n, name)| format!("{n} {name}")).collect();
    let said = if said.is_empty() { "nobody".to_owned() } else { said.join(", ") };
    let parts: Vec<(Tone, u64)> = parts.iter().map(|(tone, n, _)| (*tone, *n)).collect();
    bar_that_says(&said, &parts)
}

/// A bar of parts that are told in these words.
pub(crate) fn bar_that_says(said: &str, parts: &[(Tone, u64)]) -> Markup {
    let total: u64 = parts.iter().map(|(_, n)| n).sum();
    let mut end = 0.0;
    let drawn: Vec<(Tone, f64, f64)> = parts
        .iter()
        .filter(|(_, n)| *n > 0)
        .map(|(tone, n)| {
            let (x, width) = (end, share(*n, total));
            end += width;
            (*tone, x, width)
        })
        .collect();
    html! {
        svg.bar viewBox="0 0 100 6" preserveAspectRatio="none" role="img" aria-label=(said) {
            rect.plain width="100" height="6" {}
            @for (tone, x, width) in drawn {
                rect.(tone.class()) x=(x) width=(width) height="6" {}
            }
        }
    }
}

fn share(n: u64, total: u64) -> f64 {
    // Numbers of clients and requests are far below the precision of a double.
    if total == 0 { 0.0 } else { (n as f64 / total as f64 * 10_000.0).round() / 100.0 }
}

/// A percentage for people.
pub(crate) fn percent(share: f64) -> String {
    match share {
        share if share >= 9.95 || share == 0.0 => format!("{share:.0} %"),
        share if share >= 0.095 => format!("{share:.1} %"),
        share => format!("{share:.2} %"),
    }
}

/// The lines of a `diff -u`.
pub(crate) fn line_diff(text: &str) -> Markup {
    html! {
        pre.diff tabindex="0" {
            @for line in text.lines() {
                @let class = match line.as_bytes().first() {
                    Some(b'+') => "added",
                    Some(b'-') => "removed",
                    Some(b'@') => "place",
                    _ => "same",
                };
                span.(class) { (line) "\n" }
            }
        }
    }
}

/// A number of things, with the words for one and for many.
pub(crate) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// A link to a node.
pub(crate) fn node(id: &str) -> Markup {
    html! { a href=(path(["nodes", id])) { (id) } }
}

/// A link to a revision.
pub(crate) fn revision(number: u64) -> Markup {
    html! { a href=(path(["changes", &number.to_string()])) { (number) } }
}

/// A link to an object of documents.
pub(crate) fn object(of: &Value) -> Markup {
    let (kind, namespace, name) = (text(of, "kind"), text(of, "namespace"), text(of, "name"));
    let namespace = if namespace.is_empty() { "-" } else { namespace };
    html! { a href=(path(["routes", kind, namespace, name])) { (kind) " " (namespace) "/" (name) } }
}

/// A place in a file.
pub(crate) fn place(of: &Value) -> Markup {
    let path = if of["path"].is_string() { text(of, "path") } else { text(of, "file") };
    html! {
        @if !path.is_empty() { code { (path) @if let Some(line) = of["line"].as_u64() { ":" (line) } } }
    }
}

/// A heading of a column by which a list can be sorted.
pub(crate) fn sorted_heading(
    params: &Params,
    address: &str,
    (key, is_default): (&str, bool),
    name: &str,
) -> Markup {
    let is_it = params.get("sort").map_or(is_default, |sort| sort == key);
    let to = params.with("page", None).with("sort", Some(key)).after(address);
    html! { th scope="col" aria-sort=[is_it.then_some("ascending")] { a href=(to) { (name) } } }
}

/// A form that asks before it does something.
pub(crate) fn confirmed(act: &Act<'_>, content: &Markup) -> Markup {
    let of: Vec<String> = act.fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    html! {
        // Whoever has unfolded it confirms this and nothing else.
        details.confirm data-key=(format!("{}?{}", act.what, of.join("&"))) {
            summary.(if act.is_grave { "grave" } else { "button" }) { (act.name) }
            form.panel method="post" action=(format!("/ui/do/{}", act.what)) {
                input type="hidden" name="to" value=(act.to);
                @for (name, value) in act.fields { input type="hidden" name=(name) value=(value); }
                (content)
                button.(if act.is_grave { "grave" } else { "button" }) type="submit" { (act.confirm) }
            }
        }
    }
}

/// Something that a form does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act<'a> {
    /// The last segment of its address.
    pub(crate) what: &'a str,
    pub(crate) name: &'a str,
    /// The words on the button that does it.
    pub(crate) confirm: &'a str,
    pub(crate) is_grave: bool,
    pub(crate) fields: &'a [(&'a str, &'a str)],
    /// The screen to come back to.
    pub(crate) to: &'a str,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    pub(crate) class: &'a str,
    /// The values in order of time; `None` where nothing is known.
    pub(crate) values: Vec<Option<f64>>,
}

/// Lines over time: all have as many values, the last of them now.
pub(crate) fn plot(title: &str, unit: &str, lines: &[Line<'_>], seconds: u64) -> Markup {
    let top = lines.iter().flat_map(|line| &line.values).flatten().copied().fold(0.0, f64::max);
    let top = round_up(top);
    let last = |line: &Line<'_>| line.values.iter().rev().flatten().next().copied();
    let said: Vec<String> = lines
        .iter()
        .map(|line| {
            let value = last(line).map_or("unknown".to_owned(), |value| format!("{} {unit}", short(value)));
            format!("{} {value}", line.name)
        })
        .collect();
    html! {
        figure.plot {
            figcaption { (title) }
            svg viewBox="0 0 320 100" role="img" aria-label=(format!("{title}: {}", said.join(", "))) {
                line.axis x1="0" y1="90" x2="320" y2="90" {}
                line.axis x1="0" y1="10" x2="320" y2="10" {}
                text x="2" y="8" { (short(top)) " " (unit) }
                text x="2" y="99" { (seconds / 60) " min ago" }
                text.end x="318" y="99" { "now" }
                @for line in lines {
                    @for points in runs(&line.values, top) {
                        polyline.(line.class) points=(points) {}
                    }
                }
            }
            ul.legend { @for (line, said) in lines.iter().zip(&said) { li.(line.class) { (said) } } }
        }
    }
}

/// The points of each stretch in which values are known.
fn runs(values: &[Option<f64>], top: f64) -> Vec<String> {
    let step = 320.0 / (values.len().max(2) - 1) as f64;
    let mut runs = vec![String::new()];
    for (n, value) in values.iter().enumerate() {
        match (value, runs.last_mut()) {
            (Some(value), Some(run)) => {
                let (x, y) = (n as f64 * step, 90.0 - value / top * 80.0);
                run.push_str(&format!("{x:.1},{y:.1} "));
            }
            (None, Some(run)) if !run.is_empty() => runs.push(String::new()),
            _ => {}
        }
    }
    runs.retain(|run| !run.is_empty());
    // A line needs two points; one that ends where it begins is drawn as a dot.
    for run in runs.iter_mut().filter(|run| run.matches(',').count() == 1) {
        *run = run.repeat(2);
    }
    runs
}

/// 1, 2 or 5 and zeroes.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|step| step * unit).find(|step| *step >= value).unwrap_or(value)
}

fn short(value: f64) -> String {
    if value >= 10.0 || value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_and_says_its_numbers() {
        let drawn = bar(&[(Tone::Good, 2, "have it"), (Tone::Bad, 1, "reject it"), (Tone::Busy, 0, "wait")]);
        let text = drawn.into_string();
        assert!(text.contains(r#"aria-label="2 have it, 1 reject it""#), "{text}");
        assert!(text.contains(r#"x="66.67" width="33.33""#), "{text}");
        assert!(!text.contains("busy"), "{text}");
    }

    #[test]
    fn a_plot_has_gaps_where_nothing_is_known() {
        assert_eq!(
            runs(&[Some(0.0), Some(1.0), None, Some(1.0)], 1.0),
            ["0.0,90.0 106.7,10.0 ", "320.0,10.0 320.0,10.0 "]
        );
        assert_eq!([0.0, 0.3, 1.0, 7.0, 101.0].map(round_up), [1.0, 0.5, 1.0, 10.0, 200.0]);
    }

    #[test]
    fn what_comes_from_outside_is_text() {
        let drawn = node("<script>\"").into_string();
        assert_eq!(drawn, r#"<a href="/nodes/%3Cscript%3E%22">&lt;script&gt;&quot;</a>"#);
    }
}
