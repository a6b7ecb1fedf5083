#include "linear.h"
#define SCALAR float
#define NAME(x) x##_float
#define WIDEN widen_float
#define LOAD load_float
#define NARROW narrow_float
#include "linear_body.h"
