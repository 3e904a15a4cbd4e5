//! Chance, exactly (XE4, XE5, XR15).
//!
//! An Envoy draws one random number for each request. Every fraction and the weights look at that same number, so they depend on each
//! other. Other clients draw anew each time.

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::r#type::v3::FractionalPercent;
use envoy_types::pb::envoy::r#type::v3::fractional_percent::DenominatorType;

use crate::ratio::{Ratio, gcd};
use crate::request::Request;
use crate::semantics::{Difference, Semantics};

/// A share that a draw decides about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fraction {
    n: u32,
    of: u32,
    /// The key that replaces it at run time; empty if there is none.
    pub(crate) runtime_key: String,
}

impl Fraction {
    /// `None` if there is no default value: it always matches, or never.
    pub(crate) fn of(fraction: &RuntimeFractionalPercent, semantics: Semantics) -> Option<Self> {
        let percent = fraction.default_value.as_ref()?;
        let mut read = Self::of_percent(percent);
        read.runtime_key.clone_from(&fraction.runtime_key);
        if semantics.has(Difference::FractionIncludesLimit) {
            // grpc-go compares with `<=`, in millionths.
            let scaled = u64::from(read.n) * u64::from(MILLION / read.of) + 1;
            (read.n, read.of) = (u32::try_from(scaled).unwrap_or(u32::MAX), MILLION);
        }
        Some(read)
    }

    pub(crate) fn of_percent(percent: &FractionalPercent) -> Self {
        let of = match percent.denominator() {
            DenominatorType::Hundred => 100,
            DenominatorType::TenThousand => 10_000,
            DenominatorType::Million => MILLION,
        };
        Self { n: percent.numerator, of, runtime_key: String::new() }
    }

    /// The fraction after the request's runtime keys, each of which is read in percents of its own denominator.
    pub(crate) fn at_run_time(&self, request: &Request) -> Self {
        if let Some(check) = &request.router_check {
            let is_drawn = !check.runtime.is_empty() && check.runtime == self.runtime_key;
            return Self { n: if is_drawn { self.n.max(1) } else { 0 }, ..self.clone() };
        }
        match request.runtime.get(&self.runtime_key).filter(|_| !self.runtime_key.is_empty()) {
            Some(&(n, of)) if of > 0 && MILLION.is_multiple_of(of) => {
                Self { n, of, runtime_key: self.runtime_key.clone() }
            }
            Some(_) | None => self.clone(),
        }
    }

    /// Returns `true` if no request and no runtime key lets it match.
    pub(crate) fn is_never(&self) -> bool {
        self.n == 0 && self.runtime_key.is_empty()
    }

    pub(crate) fn ratio(&self) -> Ratio {
        Ratio::new(self.n.into(), self.of.into())
    }
}

const MILLION: u32 = 1_000_000;

/// What is left of the chance of a request after some decisions.
#[derive(Clone, Debug)]
pub(crate) enum Chance {
    /// One random number: its residues that are left.
    Shared(Residues),
    /// One random number, which is known.
    Known(u64),
    /// Independent draws: their product.
    Each(Ratio),
}

/// A set of residues of the random number.
#[derive(Clone, Debug)]
pub(crate) struct Residues {
    /// At most a million: the denominators are 100, 10,000 and 1,000,000.
    left: Vec<bool>,
}

impl Chance {
    pub(crate) fn new(request: &Request, semantics: Semantics) -> Self {
        match (semantics.has(Difference::OneDraw), request.random) {
            (true, Some(random)) => Self::Known(random),
            (true, None) => Self::Shared(Residues { left: vec![true] }),
            (false, _) => Self::Each(Ratio::ONE),
        }
    }

    /// The share of all requests.
    pub(crate) fn share(&self) -> Ratio {
        match self {
            Self::Shared(residues) => Ratio::new(residues.n_left().into(), residues.left.len() as u128),
            Self::Known(_) => Ratio::ONE,
            Self::Each(ratio) => *ratio,
        }
    }

    /// The chance within a fraction and outside; one of both is `None` if it is nothing. `None` if it cannot be told exactly.
    pub(crate) fn split(&self, fraction: &Fraction) -> Option<(Option<Self>, Option<Self>)> {
        let some = |chance: Self| Some(chance).filter(|chance| !chance.share().is_zero());
        Some(match self {
            Self::Known(random) => match random % u64::from(fraction.of) < fraction.n.into() {
                true => (Some(self.clone()), None),
                false => (None, Some(self.clone())),
            },
            Self::Shared(_) if fraction.n >= fraction.of => (Some(self.clone()), None),
            Self::Shared(_) if fraction.n == 0 => (None, Some(self.clone())),
            Self::Shared(residues) => {
                let inside = residues.refined(fraction, true);
                let outside = residues.refined(fraction, false);
                (some(Self::Shared(inside)), some(Self::Shared(outside)))
            }
            Self::Each(ratio) => {
                let (inside, outside) = (fraction.ratio(), fraction.ratio().rest());
                (some(Self::Each(ratio.times(inside)?)), some(Self::Each(ratio.times(outside)?)))
            }
        })
    }

    /// The share of all requests that each of these weights gets; `None` where it cannot be told exactly.
    pub(crate) fn weighted(&self, weights: &[u32]) -> Option<Vec<Ratio>> {
        let sum: u64 = weights.iter().copied().map(u64::from).sum();
        if sum == 0 {
            return Some(vec![Ratio::ZERO; weights.len()]);
        }
        let mut low = 0;
        let mut shares = Vec::with_capacity(weights.len());
        let classes = match self {
            Self::Shared(residues) => Some(residues.classes(sum)),
            Self::Known(_) | Self::Each(_) => None,
        };
        for weight in weights {
            let high = low + u64::from(*weight);
            shares.push(match self {
                Self::Known(random) => {
                    if (low..high).contains(&(random % sum)) {
                        Ratio::ONE
                    } else {
                        Ratio::ZERO
                    }
                }
                Self::Each(ratio) => ratio.times(Ratio::new((*weight).into(), sum.into()))?,
                Self::Shared(residues) => {
                    shared(classes.as_deref().unwrap_or_default(), residues.left.len(), low..high, sum)
                }
            });
            low = high;
        }
        Some(shares)
    }
}

impl Residues {
    fn n_left(&self) -> u32 {
        self.left.iter().map(|is_left| u32::from(*is_left)).sum()
    }

    /// The residues that are inside a fraction, or outside.
    fn refined(&self, fraction: &Fraction, inside: bool) -> Self {
        let of = fraction.of as usize;
        let modulus = self.left.len().max(of);
        let own = self.left.iter().copied().cycle().take(modulus);
        let n = fraction.n as usize;
        Self { left: own.enumerate().map(|(at, is_left)| is_left && ((at % of < n) == inside)).collect() }
    }

    /// How many residues are left in each class that the number modulo `sum` can tell apart.
    fn classes(&self, sum: u64) -> Vec<u32> {
        let n_classes = gcd(self.left.len() as u128, sum.into()) as usize;
        let mut classes = vec![0; n_classes];
        for chunk in self.left.chunks(n_classes) {
            for (class, is_left) in classes.iter_mut().zip(chunk) {
                *class += u32::from(*is_left);
            }
        }
        classes
    }
}

/// The share of numbers whose residue modulo `modulus` is left, and whose residue modulo `sum` is in the range.
fn shared(classes: &[u32], modulus: usize, range: std::ops::Range<u64>, sum: u64) -> Ratio {
    let n_classes = classes.len() as u64;
    let up_to = |end: u64, class: u64| if end > class { (end - class - 1) / n_classes + 1 } else { 0 };
    let mut n: u128 = 0;
    for (class, left) in (0..).zip(classes) {
        let in_range = up_to(range.end, class) - up_to(range.start, class);
        n += u128::from(*left) * u128::from(in_range);
    }
    Ratio::new(n * u128::from(n_classes), modulus as u128 * u128::from(sum))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, Language};

    fn chance(language: Language) -> Chance {
        Chance::new(&Request::get("a", "/"), Semantics::of(Client::newest(language)))
    }

    fn of(n: u32, of: u32) -> Fraction {
        Fraction { n, of, runtime_key: String::new() }
    }

    #[test]
    fn e5_one_number_decides_about_fractions_and_weights() {
        let (inside, outside) = chance(Language::Envoy).split(&of(10, 100)).unwrap();
        let (inside, outside) = (inside.unwrap(), outside.unwrap());
        assert_eq!(inside.share(), Ratio::new(1, 10));
        assert_eq!(inside.weighted(&[50, 50]).unwrap(), [Ratio::new(1, 10), Ratio::ZERO]);
        assert_eq!(outside.weighted(&[50, 50]).unwrap(), [Ratio::new(4, 10), Ratio::new(5, 10)]);
        // A second fraction of ten percent gets nothing.
        assert!(outside.split(&of(10, 100)).unwrap().0.is_none(), "the second gets nothing");
        // Weights on a sum without common divisors are independent.
        assert_eq!(inside.weighted(&[1, 2]).unwrap(), [Ratio::new(1, 30), Ratio::new(2, 30)]);
        // 50 of 10,000 and weights of 5,000 each: all to the first.
        let (inside, _) = chance(Language::Envoy).split(&of(50, 10_000)).unwrap();
        assert_eq!(inside.unwrap().weighted(&[5000, 5000]).unwrap(), [Ratio::new(1, 200), Ratio::ZERO]);
    }

    #[test]
    fn e5_shares_are_those_of_all_numbers() {
        for (n, d, weights) in
            [(7, 100, [3, 9, 12]), (33, 100, [10, 20, 30]), (9, 100, [0, 1, 14]), (50, 100, [25, 25, 50])]
        {
            let sum: u32 = weights.iter().sum();
            let all = d * sum;
            let (inside, _) = chance(Language::Envoy).split(&of(n, d)).unwrap();
            let counted = |low: u32, high: u32| {
                let taken = (0..all).filter(|r| r % d < n && (low..high).contains(&(r % sum))).count();
                Ratio::new(taken as u128, all.into())
            };
            let expected = [
                counted(0, weights[0]),
                counted(weights[0], weights[0] + weights[1]),
                counted(weights[0] + weights[1], sum),
            ];
            assert_eq!(inside.unwrap().weighted(&weights).unwrap(), expected, "{n}/{d} {weights:?}");
        }
    }

    #[test]
    fn r15_other_clients_draw_anew() {
        let (inside, outside) = chance(Language::CCore).split(&of(10, 100)).unwrap();
        assert_eq!(inside.unwrap().weighted(&[50, 50]).unwrap(), [Ratio::new(1, 20), Ratio::new(1, 20)]);
        let (second, _) = outside.unwrap().split(&of(10, 100)).unwrap();
        assert_eq!(second.unwrap().share(), Ratio::new(9, 100));
        let percent = FractionalPercent { numerator: 0, denominator: DenominatorType::Hundred.into() };
        let fraction = RuntimeFractionalPercent { default_value: Some(percent), runtime_key: String::new() };
        let ratio =
            |language| Fraction::of(&fraction, Semantics::of(Client::newest(language))).unwrap().ratio();
        assert_eq!(ratio(Language::CCore), Ratio::ZERO);
        assert_eq!(ratio(Language::Go), Ratio::new(1, 1_000_000));
    }

    #[test]
    fn a_known_number_decides_everything() {
        let semantics = Semantics::of(Client::newest(Language::Envoy));
        let request = Request { random: Some(60), ..Request::get("a", "/") };
        let chance = Chance::new(&request, semantics);
        assert!(chance.split(&of(10, 100)).unwrap().0.is_none());
        assert_eq!(chance.weighted(&[50, 50]).unwrap(), [Ratio::ZERO, Ratio::ONE]);
    }
}
