# SPDX-License-Identifier: Apache-2.0
"""JAX: a compiled matrix product on the first device; its backend starts from worker threads."""

import jax
import jax.numpy as jnp


@jax.jit
def trace_of_square(a):
    return jnp.trace(a @ a)


result = trace_of_square(jnp.eye(64) * 3)
print(jax.devices()[0].platform, float(result))
