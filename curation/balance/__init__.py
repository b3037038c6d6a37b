"""Balance: a corpus in which no kind of picture crowds out the others. Pure functions over arrays and tables.

Rows are clustered by embedding (`hierarchical_kmeans`) and binned by what the ledger says of them (`strata`); a budget
flows over both by water-filling (`cell_quotas`); in each cell as many rows are picked as its quota says (`pick_rows`).
"""

from curation.balance.budget import NO_LEAF, budgets, cell_quotas, water_fill_groups
from curation.balance.config import BalanceConfig
from curation.balance.diversity import effective_number, spread, summarise
from curation.balance.hierarchy import hierarchical_kmeans, training_rows
from curation.balance.sample import pick_rows
from curation.balance.strata import StratumConfig, check_strata, required_columns, strata, stratum_names
from curation.balance.tree import Hierarchy
from curation.balance.water import water_fill

__all__ = [
    "NO_LEAF",
    "BalanceConfig",
    "Hierarchy",
    "StratumConfig",
    "budgets",
    "cell_quotas",
    "check_strata",
    "effective_number",
    "hierarchical_kmeans",
    "pick_rows",
    "required_columns",
    "spread",
    "strata",
    "stratum_names",
    "summarise",
    "training_rows",
    "water_fill",
    "water_fill_groups",
]
