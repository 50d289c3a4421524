"""Written by tests/fuzz/number_writer.py, seed 7."""

from typing import NamedTuple 

import numpy as np 
from gymnasium .spaces import Box ,Discrete ,MultiDiscrete 

import operant 
from operant .lang import (
abs ,atan ,atan2 ,ceil ,clip ,cos ,exp ,floor ,log ,logical_not ,maximum ,minimum ,normal ,pi ,
randint ,sign ,sin ,sqrt ,tan ,tanh ,to_float ,to_int ,uniform ,where ,
)


def tl (x ):
    return where (abs (x )<1e6 ,x ,0.5 )


class Program (operant .Env ):
    random_numbers =63 
    observation_space =Box (-np .inf ,np .inf ,(1 ,),np .float32 )
    action_space =Discrete (5 )
    max_episode_steps =9 

    class Params (NamedTuple ):
        at :float =0.1 
        float :float =61.0 
        count :int =3 
        hard :bool =True 

    class State (NamedTuple ):
        s_x :float 
        new :float 
        floor_mod :bool 

    def reset (random ,params ):
        return Program .State (((floor (random [23 ]*64.0 )-41.0 )),((-floor (random [52 ]*64.0 ))),(floor (random [54 ]*64.0 )==2.0 ))

    def step (state ,action ,random ,params ):
        ticks =((ceil ((to_float (to_int ((state .new *2.0 )/2.0 )))/1.0 ))%83.0 )
        LINE =((where (state .floor_mod ,ticks ,0.0 ))>(((ticks *ticks ))%83.0 ))
        constants =(to_float (to_int ((floor ((state .new *1000.0 )/1000.0 ))/41.0 )))
        host_ns =(to_float (to_int ((where (state .floor_mod ,constants ,97.0 ))/41.0 )))
        return Program .State (((((floor (((floor ((constants *82.0 )/82.0 ))*1000.0 )/1000.0 ))*(abs (((floor (random [26 ]*64.0 )//params .float ))))))%1.0 ),(((((((floor (random [52 ]*64.0 )*0.0 ))//41.0 ))*(((clip (state .new ,-55.0 ,55.0 ))//params .float )))//((((clip (state .new ,-55.0 ,55.0 ))//params .float ))*(((clip (state .new ,-55.0 ,55.0 ))//params .float ))+1.0 ))),((floor (((((floor (random [15 ]*64.0 )+host_ns ))%10.0 )*47.0 )/47.0 ))>=(where (((floor ((host_ns *47.0 )/47.0 ))%100.0 )==0.0 ,(floor ((host_ns *47.0 )/47.0 )),((constants *1.0 )%1.0 ))))),(where (where (LINE ,state .floor_mod ,LINE ),(where (LINE ,host_ns ,host_ns )),(to_float (to_int ((floor (random [13 ]*64.0 )*5.0 )/5.0 ))))),(random [16 ]<0.1 )&(action ==7 )

    def observe (state ,params ):
        return ((where ((state .floor_mod ^(state .s_x <97.0 )),((state .s_x -0.0 )),((state .new -0.0 )))),)

    def action_mask (state ,params ):
        return (state .s_x ==state .s_x +0.0 ,where (state .floor_mod ,state .floor_mod ,state .floor_mod ),(state .floor_mod &state .floor_mod ),(state .floor_mod |state .floor_mod ),(state .floor_mod |(state .new <41.0 )))
