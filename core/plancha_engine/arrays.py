"""Names for the arrays that travel between the engine's parts, beside those of the messages."""

import numpy as np
import numpy.typing as npt

Float32s = npt.NDArray[np.float32]
Float64s = npt.NDArray[np.float64]
UInt64s = npt.NDArray[np.uint64]
