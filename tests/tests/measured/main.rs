//! Measurements of one server. Nothing else runs meanwhile.

mod budgets;
mod cost;
