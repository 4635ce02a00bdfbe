"""A module of tools that ends whoever imports it."""

import os

os._exit(9)
