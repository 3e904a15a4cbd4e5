//! Scales weights of any size to numbers whose sum xDS accepts.

/// Weights with the same ratios whose sum is at most 2^32-1. Weights with a small enough sum stay the same. Others are divided by their
/// greatest common divisor and, if necessary, scaled down. A weight other than 0 never becomes 0.
pub(super) fn fit(weights: &[u64]) -> Vec<u32> {
    let limit = u128::from(u32::MAX);
    let common = weights.iter().copied().fold(0, greatest_common_divisor).max(1);
    let divisor = if sum(weights) > limit { common } else { 1 };
    let weights: Vec<u64> = weights.iter().map(|weight| weight / divisor).collect();
    let total = sum(&weights);
    if total <= limit {
        return weights.iter().map(|weight| u32::try_from(*weight).unwrap_or(u32::MAX)).collect();
    }
    // Leaves room for weights that are rounded up to 1.
    let room = limit.saturating_sub(u128::try_from(weights.len()).unwrap_or(limit));
    let scale = |weight: u64| match weight {
        0 => 0,
        weight => u32::try_from(u128::from(weight) * room / total).unwrap_or(u32::MAX).max(1),
    };
    weights.iter().map(|weight| scale(*weight)).collect()
}

fn sum(weights: &[u64]) -> u128 {
    weights.iter().map(|weight| u128::from(*weight)).sum()
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_that_fit_stay_as_they_are() {
        for weights in [vec![1000, 500], vec![0, 0], vec![], vec![u64::from(u32::MAX)], vec![10, 100, 1500]] {
            let same: Vec<u64> = fit(&weights).into_iter().map(u64::from).collect();
            assert_eq!(same, weights);
        }
    }

    #[test]
    fn weights_that_do_not_fit_keep_their_relation() {
        assert_eq!(fit(&[9_000_000_000_000, 1_000_000_000_000, 0]), [9, 1, 0]);
        let scaled = fit(&[u64::MAX, u64::MAX - 1, 1, 0]);
        let total: u64 = scaled.iter().copied().map(u64::from).sum();
        assert!(total <= u64::from(u32::MAX), "{total}");
        assert!(scaled[0].abs_diff(scaled[1]) <= 1 && scaled[0] > u32::MAX / 2 - 10, "{scaled:?}");
        assert_eq!(scaled[2..], [1, 0], "a weight that is not 0 never becomes 0");
    }
}
