#include "linear.h"
#define SCALAR bfloat
#define NAME(x) x##_bfloat
#define WIDEN widen_bfloat
#define LOAD load_bfloat
#define NARROW narrow_bfloat
#include "linear_body.h"
