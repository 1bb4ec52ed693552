//! Error budgets: what refusing a request of a model costs.
//!
//! Every model may fail a small part of its requests. Its balance grows with every request and falls with
//! every refusal; the price of refusing one more rises as the balance sinks. So when somebody must be
//! refused, it is somebody whose model can afford it, and no model pays for the others.
//!
//! That holds while the cluster as a whole keeps its budget. Beyond it no sharing of the pain can save every
//! model, prices level out, and what counts is how many requests are served in all.
//!
//! Integers throughout: a request is [`ONE`], and so is the price of a model in balance.

use crate::Span;

/// One request, and the price of one when nothing is special about it.
pub(super) const ONE: i64 = 1 << 10;

/// The part of requests a model may fail, in thousandths, with some room below the one percent promised.
const ALLOWED: i64 = 8;
/// The parts of all requests at which prices begin to level out, and at which they are level, in ten
/// thousandths.
const LEVELS: (i64, i64) = (75, 90);
/// A balance is counted in units of what a model earns in this time, or of one request where that is more.
const UNIT: Span = Span::from_secs(2);
/// Bounds of a balance, in units.
const BOUNDS: (i64, i64) = (-10, 3);
/// The price doubles with every unit of debt times this, in hundredths.
const DOUBLINGS: i64 = 72;
/// A model with a full purse still pays this part of [`ONE`].
const LEAST: i64 = ONE * 6 / 10;

/// Balances and prices of all models.
#[derive(Clone, Debug, Default)]
pub(super) struct Budgets {
    models: Vec<Account>,
    /// Requests offered and refused lately, over all models, fading.
    offered: i64,
    refused: i64,
    in_debt: bool,
}

#[derive(Clone, Debug)]
struct Account {
    balance: i64,
    price: i64,
    offered: u64,
    refused: u64,
}

impl Budgets {
    /// Opens accounts until there are so many.
    pub(super) fn grow(&mut self, models: usize) {
        self.models.resize(models, Account { balance: 0, price: ONE, offered: 0, refused: 0 });
    }

    /// What refusing a request of this model costs.
    #[inline]
    pub(super) fn price(&self, model: usize) -> i64 {
        self.models[model].price
    }

    /// How many of ten thousand requests were refused lately, over all models.
    pub(super) fn bad(&self) -> i64 {
        self.refused * 10_000 / self.offered.max(1)
    }

    /// Whether any model had used up its budget when balances were last brought up to date.
    pub(super) fn in_debt(&self) -> bool {
        self.in_debt
    }

    /// The same balances for a cluster in which so many requests were offered and refused so far.
    pub(super) fn counted_from(&self, offered: &[u64], refused: &[u64]) -> Budgets {
        let mut budgets = self.clone();
        for (account, (offered, refused)) in budgets.models.iter_mut().zip(offered.iter().zip(refused)) {
            (account.offered, account.refused) = (*offered, *refused);
        }
        budgets
    }

    /// Brings balances and prices up to date with what was offered and refused so far. Called every 50 ms.
    pub(super) fn update(&mut self, offered: &[u64], refused: &[u64], gaps: impl Iterator<Item = Span>) {
        // 199/200 every 50 ms: a memory of ten seconds.
        self.offered -= self.offered / 200;
        self.refused -= self.refused / 200;
        for (account, (offered, refused)) in self.models.iter_mut().zip(offered.iter().zip(refused)) {
            let came = (offered - account.offered) as i64;
            let went = (refused - account.refused) as i64;
            (account.offered, account.refused) = (*offered, *refused);
            account.balance += came * ONE * ALLOWED / 1_000 - went * ONE;
            self.offered += came * ONE;
            self.refused += went * ONE;
        }
        let bad = self.bad();
        self.in_debt = false;
        let care = (LEVELS.1 - bad).clamp(0, LEVELS.1 - LEVELS.0) * ONE / (LEVELS.1 - LEVELS.0);
        for (account, gap) in self.models.iter_mut().zip(gaps) {
            let earned =
                UNIT.nanos() as i128 * i128::from(ONE) * i128::from(ALLOWED) / 1_000 / i128::from(gap.nanos().max(1));
            let unit = (earned as i64).max(ONE);
            account.balance = account.balance.clamp(BOUNDS.0 * unit, BOUNDS.1 * unit);
            self.in_debt |= account.balance < 0;
            let debt = -account.balance * ONE / unit;
            account.price = power_of_two(debt * DOUBLINGS / 100 * care / ONE).max(LEAST);
        }
    }
}

/// `ONE * 2^(exponent / ONE)`, straight lines between whole exponents.
fn power_of_two(exponent: i64) -> i64 {
    let (whole, part) = (exponent.div_euclid(ONE), exponent.rem_euclid(ONE));
    let between = ONE + part;
    if whole >= 0 { between << whole.min(20) } else { between >> (-whole).min(20) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP: Span = Span::from_millis(2);

    /// Feeds ten seconds in which the first model fails `bad` of its thousand requests, the second none.
    fn prices(bad: u64) -> (i64, i64) {
        let mut budgets = Budgets::default();
        budgets.grow(2);
        for step in 1..=200u64 {
            let refused = [bad * step / 200, 0];
            budgets.update(&[5 * step, 5 * step], &refused, [GAP, GAP].into_iter());
        }
        (budgets.price(0), budgets.price(1))
    }

    #[test]
    fn a_model_in_debt_is_dearer_and_a_model_in_funds_cheaper() {
        let (first, second) = prices(14);
        assert!(first > ONE && second < ONE, "{first} {second}");
        let (first, second) = prices(0);
        assert!(first == second && first < ONE, "{first} {second}");
    }

    #[test]
    fn beyond_the_budget_of_all_prices_are_level() {
        let (first, second) = prices(30);
        assert_eq!((first, second), (ONE, ONE));
    }

    #[test]
    fn powers_of_two() {
        let powers: Vec<_> = [-2 * ONE, -ONE, -ONE / 2, 0, ONE / 2, ONE, 3 * ONE].map(power_of_two).into();
        assert_eq!(powers, [ONE / 4, ONE / 2, ONE * 3 / 4, ONE, ONE * 3 / 2, 2 * ONE, 8 * ONE]);
    }
}
