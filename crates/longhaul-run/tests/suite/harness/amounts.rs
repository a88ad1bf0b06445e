//! Sums of money and tokens.

use longhaul_core::usage::BudgetAmount;

pub(crate) fn plus(first: BudgetAmount, second: BudgetAmount) -> BudgetAmount {
    BudgetAmount {
        micro_usd: first.micro_usd.plus(second.micro_usd),
        tokens: first.tokens + second.tokens,
    }
}

pub(crate) fn minus(first: BudgetAmount, second: BudgetAmount) -> BudgetAmount {
    assert!(second.micro_usd <= first.micro_usd && second.tokens <= first.tokens);
    BudgetAmount {
        micro_usd: first.micro_usd.minus(second.micro_usd),
        tokens: first.tokens - second.tokens,
    }
}
