/* Clocks that are ahead of the machine's by as many seconds as the file AHEAD_FILE says, a number of eight bytes. Loaded before a
 * program (LD_PRELOAD), whose wall clock and monotonic clock alike jump as soon as the file is written to. Waits for events end
 * after 50 ms at the latest, so that timers are seen to be over; others last as long as they would have. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void find(void) {
    int file = open(getenv("AHEAD_FILE"), O_RDONLY | O_CLOEXEC);
    void *place = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (file < 0 || place == MAP_FAILED)
        abort();
    close(file);
    ahead = place;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int told = (int)syscall(SYS_clock_gettime, clock, now);
    if (told == 0 && ahead != NULL && clock != CLOCK_PROCESS_CPUTIME_ID && clock != CLOCK_THREAD_CPUTIME_ID)
        now->tv_sec += *ahead;
    return told;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout) {
    int within = timeout < 0 || timeout > 50 ? 50 : timeout;
    return (int)syscall(SYS_epoll_pwait, epoll, events, most, within, NULL, 8);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec at;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &at);
    now->tv_sec = at.tv_sec;
    now->tv_usec = at.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (now != NULL)
        *now = at.tv_sec;
    return at.tv_sec;
}
