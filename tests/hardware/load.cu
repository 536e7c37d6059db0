// The loads of `make hardware` where there is no PyTorch; load.py is the same in PyTorch, and says what the modes are.
//
//     load matmul SECONDS | copy SECONDS | hold GIB SECONDS | launches NUMBER
//
// Each prints lines of JSON. Any failure of CUDA ends it, with the call and the error.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(call) check(call, #call)

static const double GIB = 1024.0 * 1024.0 * 1024.0;
static const size_t COPIED = 256ul << 20;
static const int SIDE = 4096, STEPS = SIDE / 16;

static void check(cudaError_t code, const char *call)
{
    if (code == cudaSuccess)
        return;
    std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(code));
    std::exit(3);
}

static double now()
{
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

static void tell(const char *event, double allocated, double sent, double received)
{
    size_t unused = 0, total = 0;
    CHECK(cudaMemGetInfo(&unused, &total));
    std::printf("{\"event\": \"%s\", \"at\": %.3f, \"pid\": %d, \"allocated\": %.0f, \"free\": %zu, \"total\": %zu, "
                "\"to_gpu\": %.0f, \"from_gpu\": %.0f}\n",
                event, now(), (int)getpid(), allocated, unused, total, sent, received);
    std::fflush(stdout);
}

// C = A * B by the tensor cores: a warp makes one 16 x 16 tile of C
__global__ void multiply(const half *a, const half *b, float *c)
{
    using namespace nvcuda;
    int tile = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize;
    int row = tile / STEPS * 16, column = tile % STEPS * 16;
    if (row >= SIDE)
        return;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int step = 0; step < STEPS; step++) {
        wmma::load_matrix_sync(left, a + row * SIDE + step * 16, SIDE);
        wmma::load_matrix_sync(right, b + step * 16 * SIDE + column, SIDE);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c + row * SIDE + column, sum, SIDE, wmma::mem_row_major);
}

__global__ void nothing() {}

static const size_t OF_MATRICES = (size_t)SIDE * SIDE * (2 * sizeof(half) + sizeof(float));

static char *matrices()
{
    char *memory = nullptr;
    CHECK(cudaMalloc(&memory, OF_MATRICES));
    CHECK(cudaMemset(memory, 0, OF_MATRICES));
    return memory;
}

static void multiply_once(char *memory)
{
    half *a = (half *)memory, *b = a + (size_t)SIDE * SIDE;
    int threads = 256, tiles = STEPS * STEPS;
    multiply<<<tiles * 32 / threads, threads>>>(a, b, (float *)(b + (size_t)SIDE * SIDE));
    CHECK(cudaGetLastError());
}

static void matmul(double seconds)
{
    char *memory = matrices();
    tell("ready", OF_MATRICES, 0, 0);
    double until = now() + seconds;
    while (now() < until) {
        for (int i = 0; i < 20; i++)
            multiply_once(memory);
        CHECK(cudaDeviceSynchronize());
    }
    tell("done", OF_MATRICES, 0, 0);
}

static void copy(double seconds)
{
    void *here = nullptr, *there = nullptr;
    double sent = 0, received = 0;
    CHECK(cudaMallocHost(&here, COPIED));
    std::memset(here, 1, COPIED);
    CHECK(cudaMalloc(&there, COPIED));
    tell("ready", COPIED, 0, 0);
    double began = now();
    while (now() < began + seconds) {
        for (int i = 0; i < 20; i++) {
            if (now() < began + seconds / 2) {
                CHECK(cudaMemcpy(there, here, COPIED, cudaMemcpyHostToDevice));
                sent += COPIED;
            } else {
                CHECK(cudaMemcpy(here, there, COPIED, cudaMemcpyDeviceToHost));
                received += COPIED;
            }
        }
        tell("copied", COPIED, sent, received);
    }
    tell("done", COPIED, sent, received);
}

static void hold(double gib, double seconds)
{
    size_t size = (size_t)(gib * GIB);
    void *held = nullptr;
    CHECK(cudaMalloc(&held, size));
    CHECK(cudaMemset(held, 1, size));
    char *memory = matrices();
    tell("ready", size + OF_MATRICES, 0, 0);
    double until = now() + seconds;
    while (now() < until) {
        multiply_once(memory);
        CHECK(cudaDeviceSynchronize());
    }
    tell("done", size + OF_MATRICES, 0, 0);
}

static void wait_for_line()
{
    char line[16];
    if (!std::fgets(line, sizeof line, stdin))
        std::exit(4); // whoever started this is gone
}

// exactly so many launches, between two lines that it is given
static void launches(long number)
{
    CHECK(cudaFree(nullptr)); // begin to use CUDA, so that the probe finds the process
    tell("ready", 0, 0, 0);
    wait_for_line();
    for (long i = 0; i < number; i++) {
        nothing<<<1, 1>>>();
        CHECK(cudaGetLastError());
        if (i % 1000 == 999)
            CHECK(cudaDeviceSynchronize());
    }
    CHECK(cudaDeviceSynchronize());
    tell("done", 0, 0, 0);
    wait_for_line();
}

int main(int count, char **arguments)
{
    if (count == 3 && !std::strcmp(arguments[1], "matmul"))
        matmul(std::atof(arguments[2]));
    else if (count == 3 && !std::strcmp(arguments[1], "copy"))
        copy(std::atof(arguments[2]));
    else if (count == 4 && !std::strcmp(arguments[1], "hold"))
        hold(std::atof(arguments[2]), std::atof(arguments[3]));
    else if (count == 3 && !std::strcmp(arguments[1], "launches"))
        launches(std::atol(arguments[2]));
    else {
        std::fprintf(stderr, "load matmul SECONDS | copy SECONDS | hold GIB SECONDS | launches NUMBER\n");
        return 2;
    }
    return 0;
}
