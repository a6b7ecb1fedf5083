#include "attention.h"
#define SCALAR bfloat
#define NAME(x) x##_bfloat
#define LOAD load_bfloat
#define WIDEN widen_bfloat
#define NARROW narrow_bfloat
#include "attention_body.h"
