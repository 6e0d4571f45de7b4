/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the driver while the shim is linked, so that its name becomes a dependency. */
typedef int corral_no_driver;
