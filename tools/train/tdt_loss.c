/* Token-and-duration transducer loss (Xu et al. 2023, arXiv 2304.06795) and its gradient.
 *
 * The lattice has a node (t, u) for frame t and u labels emitted. From (t, u) one may
 *   - emit blank with a duration d >= 1:  to (t + d, u),
 *   - emit label u with a duration d >= 0: to (t + d, u + 1), as long as t + d < T;
 * the path ends with a blank that lands on T exactly with all U labels emitted.
 * Tokens and durations have a softmax each; sigma is taken off every token log-probability
 * ("logit under-normalisation"), which favours paths of fewer, longer steps.
 *
 * logits, grad: [batch, max_t, max_u + 1, tokens + durations] float32 (tokens includes blank)
 * labels:       [batch, max_u] int32
 * losses:       [batch] float32, -log p
 * grad is written in full (zero in the padding). Returns 0, or 1 when out of memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int T, U, tokens, durations, blank, stride_t;
    const int *dur, *label;
    const float *x;
    float *g;
    double sigma;
} job;

static double add_log(double a, double b) {
    if (a < b) { double c = a; a = b; b = c; }
    if (b == -INFINITY) return a;
    return a + log1p(exp(b - a));
}

static double log_sum(const float *x, int n) {
    float top = x[0];
    for (int i = 1; i < n; i++) if (x[i] > top) top = x[i];
    float sum = 0;
    for (int i = 0; i < n; i++) sum += expf(x[i] - top);
    return (double)top + log(sum);
}

static int one(const job *j, float *loss) {
    const int T = j->T, U1 = j->U + 1, D = j->durations, N = j->tokens;
    const size_t n = (size_t)T * U1;
    double *mem = malloc(n * (6 + (size_t)D) * sizeof(double));
    if (!mem) return 1;
    double *tok = mem, *dln = mem + n, *lb = mem + 2 * n, *ll = mem + 3 * n;
    double *alpha = mem + 4 * n, *beta = mem + 5 * n, *ld = mem + 6 * n;

    for (int t = 0; t < T; t++)
        for (int u = 0; u < U1; u++) {
            const size_t k = (size_t)t * U1 + u;
            const float *x = j->x + (size_t)t * j->stride_t + (size_t)u * (N + D);
            tok[k] = log_sum(x, N);
            dln[k] = log_sum(x + N, D);
            lb[k] = x[j->blank] - tok[k] - j->sigma;
            ll[k] = u < j->U ? x[j->label[u]] - tok[k] - j->sigma : -INFINITY;
            for (int d = 0; d < D; d++) ld[k * D + d] = x[N + d] - dln[k];
            alpha[k] = beta[k] = -INFINITY;
        }

    alpha[0] = 0;
    for (int t = 0; t < T; t++)
        for (int u = 0; u < U1; u++) {
            const size_t k = (size_t)t * U1 + u;
            if (alpha[k] == -INFINITY) continue;
            for (int d = 0; d < D; d++) {
                const int to = t + j->dur[d];
                if (to >= T) continue;
                const size_t m = (size_t)to * U1 + u;
                if (to > t) alpha[m] = add_log(alpha[m], alpha[k] + lb[k] + ld[k * D + d]);
                if (u < j->U) alpha[m + 1] = add_log(alpha[m + 1], alpha[k] + ll[k] + ld[k * D + d]);
            }
        }
    for (int t = T - 1; t >= 0; t--)
        for (int u = U1 - 1; u >= 0; u--) {
            const size_t k = (size_t)t * U1 + u;
            double b = -INFINITY;
            for (int d = 0; d < D; d++) {
                const int to = t + j->dur[d];
                const size_t m = (size_t)to * U1 + u;
                if (to == T && u == j->U) b = add_log(b, lb[k] + ld[k * D + d]);
                if (to >= T) continue;
                if (to > t) b = add_log(b, beta[m] + lb[k] + ld[k * D + d]);
                if (u < j->U) b = add_log(b, beta[m + 1] + ll[k] + ld[k * D + d]);
            }
            beta[k] = b;
        }

    const double total = beta[0];
    *loss = (float)-total;
    /* d loss / d logit = softmax * occupancy(node) - occupancy(arcs that use the logit) */
    for (int t = 0; t < T; t++)
        for (int u = 0; u < U1; u++) {
            const size_t k = (size_t)t * U1 + u;
            const double node = alpha[k] + beta[k] - total;
            if (node < -30) continue;
            const double occ = exp(node);
            const size_t at = (size_t)t * j->stride_t + (size_t)u * (N + D);
            const float *x = j->x + at;
            float *g = j->g + at;
            for (int v = 0; v < N; v++) g[v] = (float)(occ * exp(x[v] - tok[k]));
            for (int d = 0; d < D; d++) g[N + d] = (float)(occ * exp(ld[k * D + d]));
            for (int d = 0; d < D; d++) {
                const int to = t + j->dur[d];
                const size_t m = (size_t)to * U1 + u;
                double blank = -INFINITY, label = -INFINITY;
                const double base = alpha[k] + ld[k * D + d] - total;
                if (to == T && u == j->U) blank = base + lb[k];
                if (to < T && to > t) blank = base + lb[k] + beta[m];
                if (to < T && u < j->U) label = base + ll[k] + beta[m + 1];
                const float b = (float)exp(blank), l = (float)exp(label);
                g[j->blank] -= b;
                if (u < j->U) g[j->label[u]] -= l;
                g[N + d] -= b + l;
            }
        }
    free(mem);
    return 0;
}

int tdt_loss(const float *logits, const int *labels, const int *frames, const int *lengths, int batch, int max_t,
             int max_u, int tokens, int durations, const int *dur, int blank, float sigma, float *losses, float *grad) {
    const int stride_t = (max_u + 1) * (tokens + durations);
    const size_t stride_b = (size_t)max_t * stride_t;
    int failed = 0;
    memset(grad, 0, (size_t)batch * stride_b * sizeof(float));
#pragma omp parallel for schedule(dynamic, 1) reduction(| : failed)
    for (int b = 0; b < batch; b++) {
        job j = {frames[b], lengths[b], tokens, durations, blank, stride_t, dur, labels + (size_t)b * max_u,
                 logits + b * stride_b, grad + b * stride_b, sigma};
        failed |= one(&j, losses + b);
    }
    return failed;
}
