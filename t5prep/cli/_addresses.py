"""Define the type of options and arguments that take an address or a path, so that no credential in one is shown."""

import click

from t5prep.io.addresses import Address


class _AddressType(click.ParamType):
    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        return Address(value)


ADDRESS = _AddressType()
