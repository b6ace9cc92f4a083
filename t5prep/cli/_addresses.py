"""Define click's type for options and arguments that are a path or a URL. Their values never show a credential."""

import click

from t5prep.io.addresses import Address


class _AddressType(click.ParamType):
    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        return Address(value)


ADDRESS = _AddressType()
