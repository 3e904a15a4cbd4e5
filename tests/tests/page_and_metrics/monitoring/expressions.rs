//! PromQL expressions, checked against what is exported.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use promql_parser::label::MatchOp;
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{BinaryExpr, Call, Expr, LabelModifier, VectorSelector, parse, token};

use super::exported::{Exported, Metric};

/// The labels of the result of an expression.
pub(crate) type Labels = BTreeSet<String>;

/// Checks an expression: that it is one, and that its metrics, labels and values exist. Returns the labels of its result.
pub(crate) fn check(text: &str, exported: &Exported) -> Result<Labels> {
    // Grafana puts in durations.
    let text = text.replace("$__rate_interval", "5m");
    let expression = parse(&text).map_err(|error| anyhow!("not PromQL: {error}"))?;
    labels(&expression, exported)
}

fn labels(expression: &Expr, exported: &Exported) -> Result<Labels> {
    match expression {
        Expr::VectorSelector(selector) => of_selector(selector, exported),
        Expr::MatrixSelector(selector) => of_selector(&selector.vs, exported),
        Expr::Subquery(subquery) => labels(&subquery.expr, exported),
        Expr::Unary(unary) => labels(&unary.expr, exported),
        Expr::Paren(paren) => labels(&paren.expr, exported),
        Expr::Aggregate(aggregate) => {
            let inner = labels(&aggregate.expr, exported)?;
            Ok(match &aggregate.modifier {
                None => Labels::new(),
                Some(LabelModifier::Include(by)) => all_of(&by.labels, &inner)?,
                Some(LabelModifier::Exclude(without)) => {
                    let without = all_of(&without.labels, &inner)?;
                    inner.difference(&without).cloned().collect()
                }
            })
        }
        Expr::Binary(binary) => of_binary(binary, exported),
        Expr::Call(call) => of_call(call, exported),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) => Ok(Labels::new()),
        Expr::Extension(_) => bail!("an extension"),
    }
}

fn of_selector(selector: &VectorSelector, exported: &Exported) -> Result<Labels> {
    let name = selector.name.as_deref().context("a selector without a name")?;
    let of_prometheus = || OF_PROMETHEUS.map(str::to_owned).into_iter();
    if name == "up" {
        return Ok(of_prometheus().collect());
    }
    let metric = exported.family(name).and_then(|name| exported.0.get(name));
    let metric = metric.with_context(|| format!("no metric {name}"))?;
    let le = name.ends_with("_bucket").then(|| "le".to_owned());
    let labels: Labels = metric.labels.keys().cloned().chain(of_prometheus()).chain(le).collect();
    ensure!(selector.matchers.or_matchers.is_empty(), "{name}: `or` in a selector");
    for matcher in &selector.matchers.matchers {
        ensure!(labels.contains(&matcher.name), "{name}: no label {}", matcher.name);
        check_value(metric, &matcher.name, &matcher.op, &matcher.value).with_context(|| name.to_owned())?;
    }
    Ok(labels)
}

/// Checks that a metric has the values that a matcher names. Variables and patterns are not looked at, and neither are labels that
/// Prometheus adds, and those of recorded metrics.
fn check_value(metric: &Metric, label: &str, op: &MatchOp, value: &str) -> Result<()> {
    let Some(known) = metric.labels.get(label).filter(|known| !known.is_empty()) else { return Ok(()) };
    let is_plain = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "-_ ".contains(c));
    let named: Vec<&str> = match op {
        MatchOp::Equal | MatchOp::NotEqual => vec![value],
        MatchOp::Re(_) | MatchOp::NotRe(_) => value.split('|').collect(),
    };
    let unknown = named.into_iter().find(|value| is_plain(value) && !known.contains(*value));
    ensure!(unknown.is_none(), "no value {unknown:?} of {label}, but {known:?}");
    Ok(())
}

fn of_binary(binary: &BinaryExpr, exported: &Exported) -> Result<Labels> {
    let [left, right] = [&binary.lhs, &binary.rhs].map(|side| labels(side, exported));
    let (left, right) = (left?, right?);
    let is_number = |side: &Expr| side.value_type() == ValueType::Scalar;
    match (is_number(&binary.lhs), is_number(&binary.rhs)) {
        (_, true) => return Ok(left),
        (true, false) => return Ok(right),
        (false, false) => {}
    }
    let is_set = [token::T_LAND, token::T_LOR, token::T_LUNLESS].contains(&binary.op.id());
    match binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref()) {
        Some(LabelModifier::Include(on)) => {
            let on_left = all_of(&on.labels, &left)?;
            all_of(&on.labels, &right)?;
            Ok(if is_set { left } else { on_left })
        }
        Some(LabelModifier::Exclude(ignored)) => {
            let rest = |side: &Labels| -> Labels {
                side.iter().filter(|label| !ignored.labels.contains(label)).cloned().collect()
            };
            ensure!(rest(&left) == rest(&right), "different labels: {left:?} and {right:?}");
            Ok(if is_set { left } else { rest(&left) })
        }
        None => {
            ensure!(left == right, "different labels: {left:?} and {right:?}");
            Ok(left)
        }
    }
}

fn of_call(call: &Call, exported: &Exported) -> Result<Labels> {
    let mut result = Labels::new();
    for argument in &call.args.args {
        let of_argument = labels(argument, exported)?;
        if matches!(argument.value_type(), ValueType::Vector | ValueType::Matrix) {
            result = of_argument;
        }
    }
    if call.func.name == "histogram_quantile" {
        ensure!(result.remove("le"), "no label le");
    }
    Ok(result)
}

fn all_of(wanted: &[String], there: &Labels) -> Result<Labels> {
    let missing = wanted.iter().find(|label| !there.contains(*label));
    ensure!(missing.is_none(), "no label {} among {there:?}", missing.map_or("", String::as_str));
    Ok(wanted.iter().cloned().collect())
}

/// The labels that Prometheus adds to everything that it reads.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];
