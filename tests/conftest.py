"""The garbage collector leaves out what lives as long as the run: every module and, in a complete run, 25,000 tests."""

import gc


def pytest_configure() -> None:
    gc.disable()  # until all tests are collected: hardly anything of what is made until then is freed


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
