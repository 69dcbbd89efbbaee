/* Nuclear norms of many small cross products at once: the inner loop of all-pairs Bures-Wasserstein.
 *
 * Input is a block of C = A Bᵀ. A holds the rows of the left texts one text after the other. B holds the right
 * texts in groups of LANES, interleaved: row (t, lane) of a group is row t of its lane-th text, zero where that text
 * has no row t. So C[r][t][lane] arrives from the matrix product with the lanes side by side, and every step below
 * treats LANES pairs with one vector instruction, with no shuffle and no branch.
 *
 * For one left text (m rows) against one group (n rows, padded):
 *   1. gram:        G = C Cᵀ, on the smaller of the two sides, in double precision;
 *   2. tridiagonal: Householder reduction of G, keeping only the diagonal d and the squared off-diagonal e2;
 *   3. root_trace:  ‖C‖_* = tr √G by the rational function √x ≈ Σ_k w_k x/(x + p_k), whose value on a tridiagonal
 *                   matrix is a short recurrence: no eigenvalues, no iteration, no convergence test.
 * Padding rows are zero and add zero eigenvalues, which add nothing. All singular values of C must be at most 1
 * (the caller scales the factors); poles and weights are made for that range.
 *
 * Plain C99 with GCC/Clang vector types, so it compiles for any CPU. For x86-64 there are three copies: for every CPU,
 * for AVX2 (v3) and for AVX-512 (v4); poolscope_level() tells which the CPU at hand can run, and the caller chooses.
 */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 4, TILE = 4, POLE_UNROLL = 4 };

typedef double vec __attribute__((vector_size(LANES * sizeof(double))));
typedef int64_t mask __attribute__((vector_size(LANES * sizeof(int64_t))));
typedef float narrow __attribute__((vector_size(LANES * sizeof(float))));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *address) {
    narrow four;
    memcpy(&four, address, sizeof four);
    return __builtin_convertvector(four, vec);
}

INLINE vec keep_where(mask condition, vec value) { return (vec)(condition & (mask)value); }

INLINE vec square_root(vec x) {
    for (int lane = 0; lane < LANES; lane++) x[lane] = sqrt(x[lane]);
    return x;
}

/* |magnitude| with the sign of `sign`. */
INLINE vec with_sign(vec magnitude, vec sign) {
    const mask bit = (mask){0} + INT64_MIN;
    return (vec)(((mask)magnitude & ~bit) | ((mask)sign & bit));
}

/* Packed lower triangle: entry (j, k), k <= j. */
INLINE size_t at(size_t j, size_t k) { return j * (j + 1) / 2 + k; }

/* One register tile of G: rows j..j+rows, columns k..k+columns, summed over all n. */
INLINE void gram_tile(const float *c, size_t row_step, size_t column_step, size_t n, size_t j, int rows, size_t k,
                      int columns, vec *G) {
    vec sum[TILE][TILE] = {{{0}}};
    const float *left = c + j * row_step, *right = c + k * row_step;
    for (size_t t = 0; t < n; t++, left += column_step, right += column_step) {
        vec b[TILE];
        for (int q = 0; q < columns; q++) b[q] = load(right + q * row_step);
        for (int p = 0; p < rows; p++) {
            vec a = load(left + p * row_step);
            for (int q = 0; q < columns; q++) sum[p][q] += a * b[q];
        }
    }
    for (int p = 0; p < rows; p++)
        for (int q = 0; q < columns; q++)
            if (k + q <= j + p) G[at(j + p, k + q)] = sum[p][q];
}

INLINE void gram(const float *c, size_t row_step, size_t column_step, size_t m, size_t n, vec *G) {
    size_t whole = m - m % TILE;
    for (size_t j = 0; j < whole; j += TILE)
        for (size_t k = 0; k <= j; k += TILE) gram_tile(c, row_step, column_step, n, j, TILE, k, TILE, G);
    for (size_t j = whole; j < m; j++) {
        for (size_t k = 0; k < whole; k += TILE) gram_tile(c, row_step, column_step, n, j, 1, k, TILE, G);
        for (size_t k = whole; k <= j; k++) gram_tile(c, row_step, column_step, n, j, 1, k, 1, G);
    }
}

/* Householder reduction of the packed symmetric G (m x m, destroyed) from the last row up. The rank-2 update of one
 * step, G −= v qᵀ + q vᵀ, waits for the next and is applied in the pass that multiplies G by the new vector, so each
 * step loads and stores G once. `scratch`: 4m. */
INLINE void tridiagonal(vec *G, size_t m, vec *d, vec *e2, vec *scratch) {
    vec *v = scratch, *q = v + m, *w = q + m, *p = w + m;
    for (size_t k = 0; k < m; k++) v[k] = q[k] = (vec){0};
    for (size_t i = m - 1; i >= 1; i--) {
        vec *row = G + at(i, 0), norm2 = {0}, vi = v[i], qi = q[i];
        d[i] = row[i] - 2.0 * vi * qi;
        for (size_t k = 0; k < i; k++) {
            w[k] = row[k] - (vi * q[k] + qi * v[k]);
            norm2 += w[k] * w[k];
        }
        e2[i] = norm2;
        /* w = row − (reflected row), h = ‖w‖²/2; a zero row needs no reflection: 1/h is masked to zero. */
        vec reflected = with_sign(square_root(norm2), -w[i - 1]);
        vec h = norm2 - w[i - 1] * reflected;
        vec inverse = keep_where(h > 1e-290, 1.0 / h);
        w[i - 1] -= reflected;
        vec projection = {0};
        for (size_t j = 0; j < i; j++) p[j] = (vec){0};
        for (size_t j = 0; j < i; j++) {
            vec *g = G + at(j, 0), dot = {0}, vj = v[j], qj = q[j], wj = w[j];
            for (size_t k = 0; k < j; k++) {
                vec x = g[k] - (vj * q[k] + qj * v[k]);
                g[k] = x;
                dot += x * w[k];
                p[k] += x * wj;
            }
            g[j] -= 2.0 * vj * qj;
            p[j] += dot + g[j] * wj;
        }
        for (size_t k = 0; k < i; k++) projection += w[k] * p[k];
        vec half = 0.5 * projection * inverse * inverse;
        for (size_t k = 0; k < i; k++) p[k] = p[k] * inverse - half * w[k];
        vec *swap = v;
        v = w, w = swap;
        swap = q, q = p, p = swap;
    }
    d[0] = G[0] - 2.0 * v[0] * q[0];
}

/* Σ_k w_k tr T(T + p_k)⁻¹ for the tridiagonal T, by the pivots 1/r of T + p and their derivatives.
 * The poles rise, so a pivot that is not positive shows at the first: rounding has made T indefinite by more than
 * p_0 can bear. Those lanes are returned as NaN, and the caller computes them another way. */
INLINE vec root_trace(const vec *d, const vec *e2, size_t m, const double *pole, const double *weight, size_t poles) {
    vec total = {0};
    mask sound = (mask){0} - 1;
    for (size_t first = 0; first < poles; first += POLE_UNROLL) {
        vec r[POLE_UNROLL], g[POLE_UNROLL], s[POLE_UNROLL];
        for (int u = 0; u < POLE_UNROLL; u++) {
            vec pivot = d[0] + pole[first + u];
            sound &= pivot > 0.0;
            s[u] = g[u] = r[u] = 1.0 / pivot;
        }
        for (size_t i = 1; i < m; i++)
            for (int u = 0; u < POLE_UNROLL; u++) {
                vec x = e2[i] * r[u];
                vec pivot = d[i] + pole[first + u] - x;
                sound &= pivot > 0.0;
                r[u] = 1.0 / pivot;
                g[u] = r[u] + r[u] * x * g[u];
                s[u] += g[u];
            }
        for (int u = 0; u < POLE_UNROLL; u++) total += weight[first + u] * ((double)m - pole[first + u] * s[u]);
    }
    return (vec)((mask)total | ~sound);
}

/* Nuclear and Frobenius norms of every (left text, right text) of one block.
 *   c              block of C, `stride` floats a row
 *   left           lefts + 1 row offsets: left text i is rows left[i] .. left[i+1]
 *   right          groups + 1 column offsets, in units of LANES columns
 *   pole, weight   `poles` of them, a multiple of POLE_UNROLL, rising
 *   scratch        (k(k+1)/2 + 6k) * LANES doubles, aligned to a vector, k = the largest min(m, n)
 *   norms          out, lefts x (groups * LANES): ‖C‖_*
 *   squares        out, the same shape: ‖C‖_F², the trace of G
 */
INLINE void nuclear_norms(const float *c, int64_t stride, const int64_t *left, int64_t lefts, const int64_t *right,
                          int64_t groups, const double *pole, const double *weight, int64_t poles, double *scratch,
                          double *norms, double *squares) {
    for (int64_t i = 0; i < lefts; i++)
        for (int64_t group = 0; group < groups; group++) {
            size_t m = (size_t)(left[i + 1] - left[i]), n = (size_t)(right[group + 1] - right[group]);
            const float *block = c + left[i] * stride + right[group] * LANES;
            int64_t out = (i * groups + group) * LANES;
            size_t row_step = (size_t)stride, column_step = LANES;
            if (n < m) { /* use the smaller side: the nonzero spectrum of C Cᵀ and Cᵀ C is the same */
                size_t swap = m;
                m = n, n = swap, row_step = LANES, column_step = (size_t)stride;
            }
            vec norm = {0}, square = {0};
            if (m > 0) {
                vec *d = (vec *)scratch, *e2 = d + m, *G = e2 + 5 * m;
                gram(block, row_step, column_step, m, n, G);
                for (size_t j = 0; j < m; j++) square += G[at(j, j)];
                tridiagonal(G, m, d, e2, e2 + m);
                norm = root_trace(d, e2, m, pole, weight, (size_t)poles);
            }
            memcpy(norms + out, &norm, sizeof norm);
            memcpy(squares + out, &square, sizeof square);
        }
}

#define COPY(name)                                                                                                     \
    void name(const float *c, int64_t stride, const int64_t *left, int64_t lefts, const int64_t *right, int64_t groups, \
              const double *pole, const double *weight, int64_t poles, double *scratch, double *norms,                 \
              double *squares) {                                                                                       \
        nuclear_norms(c, stride, left, lefts, right, groups, pole, weight, poles, scratch, norms, squares);            \
    }

COPY(poolscope_norms_default)
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) COPY(poolscope_norms_v3)
__attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512cd,avx2,fma"))) COPY(poolscope_norms_v4)
#endif

/* The highest copy that this CPU can run: 4, 3, or 0 for the default one. */
int64_t poolscope_level(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    int v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    int v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd");
    return v4 ? 4 : v3 ? 3 : 0;
#else
    return 0;
#endif
}
