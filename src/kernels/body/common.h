/* What the kernel bodies need besides their vectors. */
#ifndef KVAD_KERNELS_BODY_COMMON_H
#define KVAD_KERNELS_BODY_COMMON_H

#include <math.h>

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/compiler.h"
#include "kernels/constants.h"
#include "kernels/levels.h"

#endif
