// Runs a CUDA C++ translation unit on a CPU, with a fiber for every CUDA thread.
//
// For numbers, barriers, races within a block and bounds; not for speed. Thread blocks run one
// after another, so races between blocks go unseen. x86-64 only (see fibers.h).
#pragma once
#include "keywords.h"
#include "arithmetic.h"
#include "fibers.h"
#include "barriers.h"
#include "warps.h"
#include "asynchronous_copies.h"
#include "matrices.h"
#include "launching.h"
