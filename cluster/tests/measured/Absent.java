/** A library that the jar of the job does not have. */
class Absent {
    static long work(long x) {
        return Hard.longCode(x);
    }

    static void sleep() throws InterruptedException {
        Thread.sleep(5);
    }
}
