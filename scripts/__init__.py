"""Commands of a checkout, one file each, and the packages behind them; README.md lists them."""
