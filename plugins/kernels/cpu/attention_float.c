#include "attention.h"
#define SCALAR float
#define NAME(x) x##_float
#define LOAD load_float
#define WIDEN widen_float
#define NARROW narrow_float
#include "attention_body.h"
