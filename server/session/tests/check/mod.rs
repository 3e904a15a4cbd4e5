//! Runs a property; seeds are printed and replayable.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestCaseError, TestError, TestRunner};

/// Runs a property over as many histories as asked for, beginning with `seed` unless `XDS_SEED` says otherwise; a failure tells the
/// seed that repeats it.
pub(crate) fn check<S: Strategy>(seed: u64, strategy: &S, test: impl Fn(S::Value) -> Result<(), String>) {
    let number = |key: &str| std::env::var(key).ok().and_then(|value| value.parse::<u64>().ok());
    let seed = number("XDS_SEED").unwrap_or(seed);
    let cases = number("XDS_CASES").and_then(|cases| u32::try_from(cases).ok()).unwrap_or(256);
    let config = Config {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        max_shrink_iters: 50_000,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(strategy, |value| test(value).map_err(TestCaseError::fail));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, input)) => {
            panic!("{reason}\nXDS_SEED={seed} repeats it; the least input: {input:?}")
        }
        Err(TestError::Abort(reason)) => panic!("XDS_SEED={seed}: {reason}"),
    }
}
