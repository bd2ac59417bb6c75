import java.io.IOException;
import org.apache.hadoop.io.IntWritable;
import org.apache.hadoop.io.Text;
import org.apache.hadoop.mapreduce.Mapper;
import org.apache.hadoop.mapreduce.Reducer;

/** What cluster/tests/cli/classify.rs classifies; Count.jar has its classes. */
public class Count {
    public static class Words extends Mapper<Object, Text, Text, IntWritable> {
        @Override
        public void map(Object key, Text line, Context context)
                throws IOException, InterruptedException {
            for (String word : line.toString().split(" ")) {
                context.write(new Text(word), new IntWritable(1));
            }
        }
    }

    public static class Sum extends Reducer<Text, IntWritable, Text, IntWritable> {
        @Override
        public void reduce(Text word, Iterable<IntWritable> counts, Context context)
                throws IOException, InterruptedException {
            int sum = 0;
            for (IntWritable count : counts) {
                sum += count.get();
            }
            context.write(word, new IntWritable(sum));
        }
    }
}
