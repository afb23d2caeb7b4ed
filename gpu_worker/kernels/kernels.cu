// All kernels, in the order in which they run, as one source to compile.
#include "added.cu"
#include "pieces.cu"
#include "tokens.cu"
#include "gather.cu"
