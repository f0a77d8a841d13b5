"""Every layer that Flax has in both flavours, as data: a row's name begins with a public name of Flax."""

from flax_layers import attention, functions, linear, norms, recurrent, transforms

ROWS = {
    name: row
    for table in (linear, norms, attention, recurrent, functions, transforms)
    for name, row in table.ROWS.items()
}
